"""A DSpark draft beside a target on two ranks: the engine's texts, with and without it."""

from __future__ import annotations

from pathlib import Path

import torch
from msgspec import structs

from agentspec.engine.batch import Span
from agentspec.engine.core import Engine
from agentspec.engine.draft.base import Drafter
from agentspec.engine.draft.block import BlockOptions
from agentspec.engine.draft.load import load_block
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.model.shard import Shard
from agentspec.engine.request import GenerationRequest
from agentspec.engine.runner import Runner
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings
from tests.engine.core.toy import EOS, FLAT, ToyClock
from tests.engine.draft import blockworld as world
from tests.engine.model import ranks

SETTINGS = EngineSettings(
    dtype="fp32", exact=True, kv_tokens=2048, context_tokens=256, threads=1, step_tokens=48
)
SETTINGS = structs.replace(SETTINGS, max_draft_tokens=8)
SAMPLINGS = (SamplingParams(temperature=0.0), SamplingParams(temperature=0.9, seed=7))


def texts(folder: Path, shard: Shard) -> list[tuple[str, int]]:
    """Text and accepted draft tokens of each request. shard: of rank 0; of one rank alone: no
    messages."""
    if shard.ranks == 1:
        return generate(Runner.load(SETTINGS, folder, shard=shard), [])
    runner = ranks.opened(SETTINGS, folder, shard)
    rows = [runner.forward([Span([t], 0, [0], [0])]).logits[0].clone() for t in range(world.VOCAB)]
    raw = world.draft_config(markov_rank=world.VOCAB, enable_confidence_head=False, block_size=8)
    path = world.write_draft(folder.parent / "draft", raw, world.knowing(raw, torch.stack(rows)))
    drafter = load_block(
        path,
        runner,
        TargetFacts(config=runner.model.config, format=runner.kind),
        name="draft",
        options=BlockOptions(candidates=world.VOCAB),
    )
    told = generate(runner, [drafter])
    runner.close()
    return told


def generate(runner: Runner, drafters: list[Drafter]) -> list[tuple[str, int]]:
    engine = Engine(
        runner,
        drafters,
        curve=FLAT,
        settings=SETTINGS,
        token_bytes=[f"<{token}>".encode() for token in range(world.VOCAB)],
        clock=ToyClock(),
    )
    found = {}
    for number, sampling in enumerate(SAMPLINGS):
        name = f"r{number}"
        found[name] = ["", 0]
        engine.add(
            GenerationRequest(
                id=name,
                prompt=[3 + number, 20, 31, 44, 5],
                sampling=sampling,
                max_tokens=24,
                stop_ids=frozenset({EOS}),
                sources=tuple(drafter.name for drafter in drafters),
            )
        )
    while engine.has_work():
        for output in engine.step():
            assert output.error is None
            found[output.id][0] += output.text
            if output.report is not None and "draft" in output.report.sources:
                found[output.id][1] = output.report.sources["draft"].accepted
    return [(text, accepted) for text, accepted in found.values()]
