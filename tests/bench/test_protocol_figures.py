"""What the adoption check makes of its figures: verdicts, intervals, kinds of drafts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from agentspec.bench.load_cases import mixed
from agentspec.bench.protocol.endpoint import Answer
from agentspec.bench.protocol.figures import Block, acceptance, kind_of, throughput
from agentspec.bench.protocol.run import numbered, pointed
from agentspec.bench.protocol.verdict import Point, Verdict, judged


def blocks(walls: Sequence[float], drafts: tuple[int, int] | None = None) -> list[Block]:
    sources = None if drafts is None else {"dspark": drafts}
    return [
        Block(
            [
                Answer(3 * turn + i, 0.1, wall, 11, sources, 4 if drafts else 0, ended=True)
                for i in range(3)
            ],
            wall,
        )
        for turn, wall in enumerate(walls)
    ]


def verdict(*points: tuple[int, float, tuple[int, int] | None]) -> Verdict:
    """(concurrency, seconds of a block with drafts where plain takes 1, drafts)."""
    plain = blocks([1.0] * 6)
    return judged(
        [pointed(c, blocks([wall] * 6, drafts), plain, "unknown") for c, wall, drafts in points]
    )


def test_verdicts_by_figures():
    good = (10, 8)
    assert verdict((1, 0.5, good), (8, 0.9, good)).word == "adopt"
    assert verdict((1, 0.5, good), (8, 1.5, good)).word == "adopt up to 1"
    assert verdict((1, 1.5, good), (8, 0.5, good)).word == "do not adopt"
    assert verdict((1, 0.5, (10, 4))).word == "do not adopt"
    # Drafts that nobody tells of cannot break the rule, and neither can those of no model.
    assert verdict((1, 0.5, None)).word == "adopt"


def test_too_few_rounds_decide_nothing():
    point = pointed(1, blocks([0.5]), blocks([1.0]), "unknown")
    assert point.ratio is not None and point.ratio.interval is None
    assert judged([point]).word == "not decided"


def test_an_interval_that_holds_one_decides_nothing():
    ratio = throughput(blocks([1.0] * 6), blocks([0.8, 0.9, 0.9, 1.1, 1.3, 1.3]))
    assert ratio is not None and ratio.interval is not None
    assert ratio.interval[0] < 1.0 < ratio.interval[1]


def test_a_worse_tail_is_no_adoption():
    """Throughput gains, but the slowest requests wait three times as long for each token."""

    def many(count: int) -> Point:
        drafted = blocks([0.5] * count)
        for block in drafted:
            block.answers = [replace(answer, e2e_s=3.0) for answer in block.answers]
        return pointed(1, drafted, blocks([1.0] * count), "unknown")

    point = many(34)
    found = judged([point])
    assert point.answer == "pays" and found.word == "do not adopt"
    assert any("P99" in reason for reason in found.reasons)
    # Of 99 requests a P99 is the slowest one: it decides nothing.
    few = many(33)
    assert few.p99 is not None and few.p99.interval is None
    assert judged([few]).word == "adopt"


def test_kinds_are_told_apart():
    sources = {"forced": (5, 5), "suffix": (10, 9), "eagle3": (10, 3), "vllm": (4, 4)}
    found = acceptance([Answer(0, 0.1, 0.2, 9, sources, 4, ended=True)], "unknown")
    rates = {kind: share.rate for kind, share in found.shares.items()}
    assert rates == {"forced": 1.0, "copied": 0.9, "model": 0.3, "unknown": 1.0}
    # Forced tokens are no part of the accepted length: 1 + (9 + 3 + 4) / 4.
    assert found.length == 5.0
    assert kind_of("vllm", "copied") == "copied"


def test_a_prompt_that_comes_again_tells_nothing_new_of_acceptance():
    """Two prompts, one accepted at 0.2 and one at 0.6, twenty times: no interval comes of two."""
    repeated = [
        Answer(i % 2, 0.1, 0.2, 9, {"dspark": (10, 2 if i % 2 else 6)}, 4, ended=True)
        for i in range(40)
    ]
    assert acceptance(repeated, "unknown").shares["model"].interval is None
    apart = [replace(answer, prompt=i) for i, answer in enumerate(repeated)]
    assert acceptance(apart, "unknown").shares["model"].interval is not None


def test_rounds_have_prompts_of_their_own_and_repeats_keep_their_number():
    found = numbered(mixed(["chat"], 0), 500)
    numbers = {id(prompt): number for number, prompt in found}
    assert all(numbers[id(prompt)] == number for number, prompt in found)
    assert sorted(numbers.values()) == list(range(len(numbers)))
    assert [number for number, _ in found[: len(numbers)]] == list(range(len(numbers)))
    assert 6 <= len(numbers) < 500
