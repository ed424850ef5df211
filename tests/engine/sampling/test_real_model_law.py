"""Smoke on the real model: speculative sampling follows its distribution (chi-square)."""

from __future__ import annotations

import random
import time
from collections import Counter

import pytest
import torch

from agentspec.engine import sampling
from agentspec.engine.batch import Span
from agentspec.engine.build import build
from agentspec.engine.runners import open_runner
from agentspec.engine.sampling import SamplingParams, target_probs
from agentspec.settings import EngineSettings
from agentspec.wire.chat import decode_request, encode

pytestmark = pytest.mark.model
PROMPT = "The list: red, green, blue, red, green, blue, red, green, blue, red, green,"
PARAMS = SamplingParams(temperature=0.9, top_k=40)
RUNS = 400
SETTINGS = EngineSettings(kv_tokens=8192, threads=1)


def statistic(observed: Counter, probs: torch.Tensor) -> tuple[float, int]:
    """Chi-square of the counts against probs [V], and its degrees of freedom; rare ones pooled."""
    total = sum(observed.values())
    expected = {int(t): float(probs[t]) * total for t in probs.nonzero()[:, 0]}
    assert set(observed) <= set(expected), "a token that the target never gives"
    common = [token for token, count in expected.items() if count >= 5]
    pairs = [(observed[token], expected[token]) for token in common]
    rest = total - sum(o for o, _ in pairs), total - sum(e for _, e in pairs)
    if rest[1] >= 5:
        pairs.append(rest)
    return sum((o - e) ** 2 / e for o, e in pairs), len(pairs) - 1


def limit(freedom: int) -> float:
    """A bound that a right sampler exceeds about once in 10,000 seeds (Wilson-Hilferty)."""
    z, k = 3.72, max(freedom, 1)
    return k * (1 - 2 / (9 * k) + z * (2 / (9 * k)) ** 0.5) ** 3


def test_two_sampled_tokens_follow_the_models_own_distribution(monkeypatch, model_path):
    chance = random.Random(7)
    monkeypatch.setattr(sampling.os, "urandom", lambda count: chance.randbytes(count))
    built = build(SETTINGS)
    pairs: Counter = Counter()
    drafted = 0
    for _ in range(RUNS):
        body = {
            "model": SETTINGS.model,
            "messages": [{"role": "user", "content": "continued below, without a template"}],
            "max_tokens": 3,
            "temperature": PARAMS.temperature,
            "top_k": PARAMS.top_k,
            "logprobs": True,
        }
        sequence = built.planner.plan(decode_request(encode(body)), time.monotonic()).sequences[0]
        sequence.prompt = built.tokenizer.encode(PROMPT)
        built.engine.add(sequence)
        tokens: list[int] = []
        while built.engine.has_work():
            for output in built.engine.step():
                tokens += [info.token for info in output.infos]
                if output.report:
                    drafted += output.report.totals()[0]
        pairs[tuple(tokens[:2])] += 1
    assert drafted > RUNS / 4, "no speculation took place"

    runner = open_runner(SETTINGS, model_path)
    prompt = sequence.prompt
    pages = list(range(len(prompt) // runner.page_tokens + 2))
    logits = runner.forward([Span(prompt, 0, pages, [len(prompt) - 1])]).logits[0].clone()
    first = Counter()
    for (token, *_), count in pairs.items():
        first[token] += count
    value, freedom = statistic(first, target_probs(logits, PARAMS, None))
    assert value < limit(freedom)

    usual = first.most_common(1)[0][0]
    logits = runner.forward([Span([usual], len(prompt), pages, [0])]).logits[0]
    second = Counter({p[1]: n for p, n in pairs.items() if p[0] == usual and len(p) > 1})
    value, freedom = statistic(second, target_probs(logits, PARAMS, None))
    assert value < limit(freedom)
