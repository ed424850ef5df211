"""``bench engine --device cuda``: a Qwen3-8B of random weights, and drafts whose acceptance is set.

No checkpoint of that size is needed: a pass takes as long whatever its weights say. Two things are
measured. ``pass``: milliseconds by sequences, rows of each and context: the cost of verifying.
``decode``: tokens a second of the whole engine, plain and with drafts; a draft is the recorded
plain answer, each token of it spoiled with a set chance, so that acceptance is what was asked for
and the text must be plain decoding's. No draft model runs: its cost is not in these figures.
"""

from __future__ import annotations

import itertools
import random
import statistics
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

import torch

from agentspec.engine.batch import Span
from agentspec.engine.core import Engine
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import DraftView, Proposal
from agentspec.engine.model.config import ModelConfig
from agentspec.engine.model.llama import Llama
from agentspec.engine.request import GenerationRequest
from agentspec.engine.runner import Runner
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings

from . import report
from .kernels_gpu import required

COLUMNS = ["what", "sequences", "width", "context", "acceptance", "ms", "over_one", "tok_s"]
COLUMNS += ["over_plain", "accepted_length", "same_text", "n"]
SHAPE = ModelConfig(
    architecture="qwen3",
    layers=36,
    hidden=4096,
    ffn=12288,
    heads=32,
    kv_heads=8,
    head_dim=128,
    vocab=151_936,
    context_tokens=40_960,
    rope_theta=1e6,
    norm_eps=1e-6,
    tied=False,
    qk_norm=True,
)
"""Qwen/Qwen3-8B, config.json."""
SOURCE = "scripted"
_SPREAD = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """count: runs of each figure. sequences, contexts: of a pass. widths: rows of a sequence in a
    pass, drafts less one when decoding. acceptance: of each drafted token. tokens: of an answer."""

    count: int
    sequences: Seq[int]
    widths: Seq[int]
    contexts: Seq[int]
    acceptance: Seq[float]
    tokens: int = 128


def run(plan: Plan) -> dict[str, Any]:
    """The whole bench. Raises ``BenchError`` where there is no GPU."""
    device = required()
    bench = Bench(plan, SHAPE, device, torch.bfloat16)
    rows = [*bench.passes(), *bench.decoding()]
    found = torch.cuda.get_device_properties(device)
    memory = torch.cuda.max_memory_allocated(device)
    return report.build(rows, gpu=found.name, peak_bytes=memory, random_weights=True)


class Bench:
    """One model of random weights with its pages."""

    def __init__(self, plan: Plan, shape: ModelConfig, device: torch.device, dtype: torch.dtype):
        self._plan = plan
        page = 16
        longest = max(plan.contexts) + max(plan.tokens, max(plan.widths)) + 2 * page
        pages = max(plan.sequences) * (longest // page + 1)
        model = Llama(shape, dtype=dtype, device=device, context_tokens=longest)
        for name, weight in model.targets().items():
            weight.fill_(1.0) if name.endswith("norm.weight") else weight.normal_(0.0, _SPREAD)
        self._runner = Runner(
            model, page_tokens=page, num_pages=pages, context_tokens=longest, dtype=dtype,
            device=device,
        )  # fmt: skip
        self._pages = longest // page + 1

    def passes(self) -> Iterator[dict[str, Any]]:
        """Rows of ``pass``. The cache behind them is zeros: what it holds changes no time."""
        plan = self._plan
        for sequences, context in itertools.product(plan.sequences, plan.contexts):
            one: float | None = None
            for width in sorted({1, *plan.widths}):
                spans = [self._span(i, width, context) for i in range(sequences)]
                ms = statistics.median(self._timed(spans))
                one = one or ms
                yield {"what": "pass", "sequences": sequences, "width": width} | {
                    "context": context, "ms": ms, "over_one": ms / one, "n": plan.count
                }  # fmt: skip

    def _span(self, number: int, width: int, context: int) -> Span:
        pages = range(number * self._pages, (number + 1) * self._pages)
        return Span([7] * width, context, list(pages), list(range(width)))

    def _timed(self, spans: Seq[Span]) -> Iterator[float]:
        for number in range(self._plan.count + 2):
            self._wait()
            started_s = time.perf_counter()
            self._runner.forward(spans)
            self._wait()
            if number >= 2:
                yield (time.perf_counter() - started_s) * 1000

    def _wait(self) -> None:
        if self._runner.device.type == "cuda":
            torch.cuda.synchronize(self._runner.device)

    def decoding(self) -> Iterator[dict[str, Any]]:
        """Rows of ``decode``, at the shortest context."""
        plan, context = self._plan, min(self._plan.contexts)
        for sequences in plan.sequences:
            vocab = self._runner.vocab_size
            requests = [_request(i, context, plan.tokens, vocab) for i in range(sequences)]
            answers = self._decoded(requests, None, 0, record=True).answers
            plain = [self._decoded(requests, None, 0).tok_s for _ in range(plan.count)]
            base = {"what": "decode", "sequences": sequences, "context": context, "n": plan.count}
            yield base | {"width": 0, "tok_s": statistics.median(plain)}
            for width, acceptance in itertools.product(plan.widths, plan.acceptance):
                if width < 2:
                    continue
                script = Script(answers, acceptance)
                runs = [self._decoded(requests, script, width - 1) for _ in range(plan.count)]
                check = self._decoded(requests, script, width - 1, record=True)
                tok_s = statistics.median(one.tok_s for one in runs)
                yield (
                    base
                    | {"width": width, "acceptance": acceptance, "tok_s": tok_s}
                    | {
                        "over_plain": tok_s / statistics.median(plain),
                        "accepted_length": check.accepted_length,
                        "same_text": sum(check.answers[id] == text for id, text in answers.items()),
                    }
                )

    def _decoded(
        self, requests: Seq[GenerationRequest], script: Script | None, drafts: int, *,
        record: bool = False,
    ) -> Decoded:  # fmt: skip
        settings = EngineSettings(max_sequences=len(requests), max_draft_tokens=max(drafts, 1))
        engine = Engine(
            self._runner,
            [] if script is None else [script],
            curve=CostCurve((1, 1024), (1.0, 1.0)),
            settings=settings,
            token_bytes=[b"."] * self._runner.vocab_size,
        )
        engine.speculation_mode = f"k{drafts}" if drafts else "off"
        sources = () if script is None else (SOURCE,)
        for request in requests:
            logprobs = 0 if record else None
            engine.add(replace(request, sources=sources, logprobs=logprobs))
        return _timed_run(engine)


@dataclass(slots=True)
class Decoded:
    """tok_s: output tokens of all sequences over the time from the first answer's first token to
    the last one's last. answers: ids by request, where they were recorded."""

    tok_s: float
    accepted_length: float
    answers: dict[str, list[int]]


def _timed_run(engine: Engine) -> Decoded:
    answers: dict[str, list[int]] = {}
    count, steps, first_s, before = 0, 0, None, 0
    while engine.has_work():
        for output in engine.step():
            count += output.tokens
            answers.setdefault(output.id, []).extend(info.token for info in output.infos)
            if output.report is not None:
                steps += output.report.steps
        if first_s is None and count:
            first_s, before = time.perf_counter(), count
    assert first_s is not None
    seconds = time.perf_counter() - first_s
    return Decoded((count - before) / max(seconds, 1e-9), count / max(steps, 1), answers)


def _request(number: int, context: int, tokens: int, vocab: int) -> GenerationRequest:
    draw = random.Random(number)
    prompt = [draw.randrange(vocab) for _ in range(context)]
    greedy = SamplingParams(temperature=0.0)
    return GenerationRequest(id=f"r{number}", prompt=prompt, max_tokens=tokens, sampling=greedy)


class Script:
    """A draft source that knows the answers. A token of it is spoiled with chance 1 - acceptance,
    the same ones in every run."""

    name = SOURCE
    taps: tuple[int, ...] = ()

    def __init__(self, answers: dict[str, list[int]], acceptance: float):
        self._texts = list(answers.values())
        self._acceptance = acceptance
        self._own: dict[int, list[int]] = {}
        self._opened = itertools.count()

    def open(self, view: DraftView) -> None:
        self._own[view.sequence_id] = self._texts[next(self._opened) % len(self._texts)]

    def propose(self, views: Seq[DraftView], limits: Seq[int]) -> list[Proposal]:
        return [self._of(view, limit) for view, limit in zip(views, limits, strict=True)]

    def _of(self, view: DraftView, limit: int) -> Proposal:
        done = len(view.tokens) - view.prompt_length
        tokens = [
            token if random.Random(done + i).random() < self._acceptance else token ^ 1
            for i, token in enumerate(self._own[view.sequence_id][done : done + limit])
        ]
        count = len(tokens)
        return Proposal(tuple(tokens), (SOURCE,) * count, (self._acceptance or 0.01,) * count)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        return

    def close(self, view: DraftView) -> None:
        self._own.pop(view.sequence_id, None)
