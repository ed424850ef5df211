"""Whatever a block draft says, the text is that of plain decoding; a good one saves passes."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec import structs

from agentspec.engine.batch import Span
from agentspec.engine.core import Engine
from agentspec.engine.draft.base import Drafter
from agentspec.engine.draft.block import BlockOptions
from agentspec.engine.draft.load import load_block
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.exact_runner import ExactRunner, Unavailable
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings
from tests.engine.core.toy import EOS, FLAT, JSON_LIKE, Dfa, ToyClock
from tests.engine.draft import blockworld as world

SETTINGS = EngineSettings(
    dtype="int8", kv_tokens=2048, context_tokens=256, threads=1, step_tokens=48, max_draft_tokens=8
)
TOKEN_BYTES = [f"<{token}>".encode() for token in range(world.VOCAB)]
WORDS = Dfa(
    "word",
    {
        "word": dict.fromkeys(range(20, 70), "dot"),
        "dot": {71: "space", 72: "word"},
        "space": {73: "pause"},
        "pause": {74: "word"},
    },
    frozenset({"word"}),
)
"""A word and a comma, or a word and three tokens of which two are forced, and so on."""
KINDS: dict[str, dict[str, Any]] = {
    "dspark": {},
    "qwen3": {"kind": "qwen3", "markov_head_type": "rnn"},
    "dflash": {
        "markov_rank": 0,
        "enable_confidence_head": False,
        "sample_from_anchor": False,
        "block_size": 7,
    },
    "jetspec": {"causal": True, "markov_head_type": "gated"},
    "good": {"markov_rank": world.VOCAB, "enable_confidence_head": False, "block_size": 8},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return world.write_target(tmp_path_factory.mktemp("target"), mixing=0.1)


def open_target(folder: Path) -> ExactRunner:
    try:
        return ExactRunner.load(SETTINGS, folder)
    except Unavailable as error:
        pytest.skip(str(error))


def bigrams(runner: ExactRunner) -> torch.Tensor:
    """[V, V] logits after each token, alone."""
    rows = [runner.forward([Span([t], 0, [0], [0])]).logits[0].clone() for t in range(world.VOCAB)]
    return torch.stack(rows)


def drafter_of(kind: str, runner: ExactRunner, path: Path, **options: Any) -> Drafter:
    raw = world.draft_config(**KINDS[kind])
    tensors = world.knowing(raw, bigrams(runner)) if kind == "good" else world.draft_tensors(raw)
    facts = TargetFacts(config=runner.model.config, format="int8")
    chosen: dict[str, Any] = {"candidates": world.VOCAB} | options
    return load_block(
        world.write_draft(path, raw, tensors),
        runner,
        facts,
        name="draft",
        options=BlockOptions(**chosen),
    )


@dataclass
class Told:
    text: str = ""
    reason: str = ""
    steps: int = 0
    accepted: int = 0
    drafted: int = 0


def engine_of(runner, drafters: Seq[Drafter]) -> Engine:
    return Engine(
        runner,
        drafters,
        curve=FLAT,
        settings=SETTINGS,
        token_bytes=TOKEN_BYTES,
        clock=ToyClock(),
    )


def generate(runner, drafters: Seq[Drafter], requests: Seq[GenerationRequest]) -> list[Told]:
    return run(engine_of(runner, drafters), requests)


def run(engine: Engine, requests: Seq[GenerationRequest]) -> list[Told]:
    told = {request.id: Told() for request in requests}
    for request in requests:
        engine.add(request)
    while engine.has_work():
        for output in engine.step():
            assert output.error is None
            one = told[output.id]
            one.text += output.text
            if output.finish_reason is not None:
                assert output.report is not None
                one.reason, one.steps = output.finish_reason, output.report.steps
                count = output.report.sources.get("draft")
                if count is not None:
                    one.accepted, one.drafted = count.accepted, count.drafted
        engine.check_integrity()
    return list(told.values())


def requests_of(count: int, sampling: dict[str, Any], grammar, sources=("draft",)):
    random = np.random.default_rng(11)
    return [
        GenerationRequest(
            id=f"r{number}",
            prompt=random.integers(0, world.VOCAB - 2, 5 + 9 * number).tolist(),
            sampling=SamplingParams(**sampling),
            max_tokens=40,
            stop_ids=frozenset({EOS}),
            constraint=grammar,
            sources=tuple(sources),
        )
        for number in range(count)
    ]


SAMPLINGS = {
    "greedy": {"temperature": 0.0},
    "seeded": {"temperature": 0.9, "seed": 77},
    "seeded-cut": {"temperature": 1.2, "seed": 5, "top_p": 0.8, "top_k": 20},
}
GRAMMARS = {"free": None, "json": JSON_LIKE, "words": WORDS}


@pytest.fixture(scope="module")
def truth(folder):
    """The plain text of eight requests, each alone, by sampling and grammar; made when needed."""
    made: dict[tuple[str, str], list[Told]] = {}

    def of(sampling: str, grammar: str) -> list[Told]:
        if (sampling, grammar) not in made:
            runner = open_target(folder)
            asked = requests_of(8, SAMPLINGS[sampling], GRAMMARS[grammar], sources=())
            made[sampling, grammar] = [generate(runner, [], [one])[0] for one in asked]
        return made[sampling, grammar]

    return of


PAIRS = [("greedy", "free"), ("seeded", "json"), ("seeded-cut", "words"), ("greedy", "words")]


@pytest.mark.parametrize(("sampling", "grammar"), PAIRS)
@pytest.mark.parametrize("kind", KINDS)
def test_the_text_is_the_plain_one(kind, sampling, grammar, folder, truth, tmp_path):
    expected = [(one.text, one.reason) for one in truth(sampling, grammar)]
    for batch in (1, 3, 8):
        runner = open_target(folder)
        drafter = drafter_of(kind, runner, tmp_path)
        asked = requests_of(batch, SAMPLINGS[sampling], GRAMMARS[grammar])
        told = generate(runner, [drafter], asked)
        assert [(one.text, one.reason) for one in told] == expected[:batch]
        assert sum(one.drafted for one in told) > 0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_a_good_draft_saves_passes(sampling, folder, truth, tmp_path):
    runner = open_target(folder)
    drafter = drafter_of("good", runner, tmp_path)
    told = generate(runner, [drafter], requests_of(8, SAMPLINGS[sampling], None))
    plain = truth(sampling, "free")
    assert sum(one.steps for one in told) < 0.5 * sum(one.steps for one in plain)
    assert sum(one.accepted for one in told) > 0.3 * sum(one.drafted for one in told)


def test_knowing_the_grammar_accepts_more_than_blind_drafting(folder, tmp_path):
    accepted = {}
    for blind in (False, True):
        runner = open_target(folder)
        drafter = drafter_of("good", runner, tmp_path / str(blind), blind=blind)
        asked = requests_of(8, SAMPLINGS["greedy"], JSON_LIKE)
        accepted[blind] = sum(one.accepted for one in generate(runner, [drafter], asked))
    assert accepted[False] > accepted[True]


@pytest.mark.parametrize("forced", ["anchor", "block"])
def test_forced_spans_before_the_block(forced, folder, truth, tmp_path):
    runner = open_target(folder)
    drafter = drafter_of("dspark", runner, tmp_path, forced=forced)
    told = generate(runner, [drafter], requests_of(8, SAMPLINGS["greedy"], JSON_LIKE))
    assert [one.text for one in told] == [one.text for one in truth("greedy", "json")]


@pytest.mark.parametrize("kind", ["dspark", "good"])
def test_scarce_pages_and_prefix_hits(kind, folder, truth, tmp_path):
    """Preempted sequences come back, and later ones find pages: some with the plane, some not."""
    runner = ExactRunner.load(structs.replace(SETTINGS, kv_tokens=288), folder)
    drafter = drafter_of(kind, runner, tmp_path)
    asked = requests_of(8, SAMPLINGS["greedy"], None)
    expected = [one.text for one in truth("greedy", "free")]
    engine = engine_of(runner, [drafter])
    assert [one.text for one in run(engine, asked)] == expected
    assert engine.stats().preemptions > 0
    plain = [replace(one, id=f"plain {one.id}", sources=()) for one in asked]
    assert [one.text for one in run(engine, plain)] == expected
    again = [replace(one, id=f"again {one.id}") for one in asked]
    assert [one.text for one in run(engine, again)] == expected


def test_a_hit_without_the_plane_refills_a_window_once(folder, tmp_path):
    runner = open_target(folder)
    drafter = drafter_of("dspark", runner, tmp_path)
    engine = engine_of(runner, [drafter])
    (first,) = requests_of(1, SAMPLINGS["greedy"], None)
    first.prompt = (first.prompt * 40)[:200]
    texts, hits = [], []
    for number, sources in enumerate([(), ("draft",), ("draft",), ()]):
        before = engine.stats().prefix_hit_tokens
        one = replace(first, id=f"{number}", sources=sources)
        texts.append(run(engine, [one])[0].text)
        hits.append(engine.stats().prefix_hit_tokens - before)
    assert hits == [0, 192 - 128, 192, 192]
    assert len(set(texts)) == 1
