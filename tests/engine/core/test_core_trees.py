"""Trees in the engine: text is plain decoding's in any company, K/V lies where it belongs."""

from __future__ import annotations

import pytest

from agentspec.engine.sampling import SamplingParams
from agentspec.engine.slot import Slot
from tests.engine.core.reference import Reference
from tests.engine.core.toy import EOS, JSON_LIKE, TOOL_LIKE
from tests.engine.core.trees import TreeDrafter
from tests.engine.core.world import MODEL, PROMPT, World, check_told, make

TEMPERATURES = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.9, seed=11),
    "penalised": SamplingParams(temperature=0.7, seed=5, frequency_penalty=0.4, top_p=0.9),
}
CONSTRAINTS = {"free": None, "json": JSON_LIKE, "tool": TOOL_LIKE}


def _world(**options) -> tuple[World, TreeDrafter]:
    drafter = TreeDrafter(MODEL, wrong=9, name="tree")
    return World(drafter, **{"max_draft_tokens": 9, **options}), drafter


@pytest.mark.parametrize("sampling", TEMPERATURES)
@pytest.mark.parametrize("constraint", CONSTRAINTS)
@pytest.mark.parametrize("count", [1, 3, 8])
def test_text_and_infos_are_the_references(sampling: str, constraint: str, count: int):
    world, drafter = _world(pages=96)
    requests = [
        make(
            f"r{i}",
            [*PROMPT, i % 7 + 1, 2],
            sampling=TEMPERATURES[sampling],
            constraint=CONSTRAINTS[constraint],
            sources=("tree",),
            stop_ids=frozenset({EOS}),
            logprobs=2 if i % 2 else None,
            max_tokens=12 + i,
        )
        for i in range(count)
    ]
    told = world.run(*requests)
    for request in requests:
        check_told(told[request.id], Reference(MODEL, request).decode())
    assert drafter.accepted > 0 or count == 1
    assert world.runner.moved > 0 or constraint == "json"


def test_unseeded_greedy_text_under_scarce_pages_and_small_chunks():
    world, _ = _world(pages=14, step_tokens=12)
    requests = [make(f"r{i}", [*PROMPT, i + 1], sources=("tree",)) for i in range(4)]
    told = world.run(*requests)
    for request in requests:
        check_told(told[request.id], Reference(MODEL, request).decode())


def test_pages_that_held_trees_serve_later_prompts():
    """What is published was moved first: a prefix hit reads the right K/V."""
    world, _ = _world()
    first = make("first", sources=("tree",), max_tokens=24)
    told = world.run(first)
    answer = Reference(MODEL, first).decode().output
    again = make("again", [*PROMPT, *answer, 3], sources=())
    told = world.run(again)
    assert told["again"].cached_tokens >= len(PROMPT) + len(answer) - 4
    check_told(told["again"], Reference(MODEL, again).decode())


@pytest.mark.parametrize("fault", ["off by one", "left out"])
def test_a_wrong_compaction_shows(monkeypatch, fault: str):
    honest = Slot.moves

    def wrong(self: Slot) -> list[tuple[int, int]]:
        moves = honest(self)
        if fault == "left out":
            return []
        return [(source - 1, to) for source, to in moves]

    monkeypatch.setattr(Slot, "moves", wrong)
    world, _ = _world()
    request = make(sources=("tree",), max_tokens=24)
    told = world.run(request)
    assert told["r"].text != Reference(MODEL, request).decode().text


def test_a_tree_counts_every_row_and_accepts_a_path():
    world, drafter = _world()
    told = world.run(make(sources=("tree",)))["r"]
    count = told.report.sources["tree"]
    assert count.accepted == drafter.accepted == sum(j * n for j, n in enumerate(told.report.hist))
    assert count.drafted > 2 * count.accepted
