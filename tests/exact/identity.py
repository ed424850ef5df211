"""The identity suite: every prompt in a covering set of situations, its text always the same."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

from agentspec.engine.core import Engine
from agentspec.engine.request import GenerationRequest
from tests.exact.cover import Cover, Row
from tests.exact.world import SOURCES, Answer, Case, Told, World, drive

FACTORS = {
    "speculation": list(SOURCES),
    "batch": [1, 3, 8],
    "step_tokens": [48, 512],
    "prefix": ["hit", "miss"],
    "temperature": [0, 1],
    "pool": ["large", "tight"],
    "abort": [False, True],
}
WATCHED = ("speculation", "batch", "step_tokens", "prefix", "temperature")
"""Every combination of these is met; of the others with them every pair, for every prompt."""
_GROUP = ("step_tokens", "pool", "batch", "abort")
"""What all requests of a batch share; speculation, prefix and temperature are mixed in it."""
Item = tuple[int, Row]
"""Number of a prompt, and the situation in which it is to run."""


@dataclass
class Figures:
    """What the suite met, to show that it looked at what it says."""

    runs: int = 0
    hits: int = 0
    aborted: int = 0
    drafted: int = 0
    accepted: int = 0
    preemptions: int = 0
    differing: list[str] = field(default_factory=list)


def design(prompts: Seq[int], seed: int = 0) -> list[Item]:
    """Every prompt with its covering set of rows."""
    cover = Cover(FACTORS, WATCHED, seed)
    return [(prompt, row) for prompt in prompts for row in cover.rows()]


def batches(items: Seq[Item], seed: int = 0) -> Iterator[list[Item]]:
    """Items that run together: alike in the factors of a group, shuffled in the others."""
    groups: dict[tuple, list[Item]] = defaultdict(list)
    for item in items:
        groups[tuple(item[1][name] for name in _GROUP)].append(item)
    for key in sorted(groups, key=str):
        group, size = groups[key], key[_GROUP.index("batch")]
        random.Random(f"{seed}{key}").shuffle(group)
        for i in range(0, len(group), size):
            # A batch that would be too small is filled up with rows of the group's beginning.
            yield list(itertools.islice(itertools.cycle(group[i:] + group[:i]), size))


def run(world: World, items: Seq[Item]) -> Figures:
    """Run all items; ``differing`` names those whose answer is not that of plain decoding."""
    cases = sorted({Case(prompt, row["temperature"]) for prompt, row in items})
    truth = {case: world.alone(case) for case in cases}
    figures = Figures()
    for number, batch in enumerate(batches(items)):
        _run_batch(world, batch, number, truth, figures)
    return figures


def _run_batch(
    world: World, batch: Seq[Item], number: int, truth: dict[Case, Answer], figures: Figures
) -> None:
    row = batch[0][1]
    planned = [(Case(prompt, row["temperature"]), prompt, row) for prompt, row in batch]
    requests = [
        world.request(case, row["speculation"], f"hit-{prompt}" if row["prefix"] == "hit" else None)
        for case, prompt, row in planned
    ]
    victim_case = planned[number % len(planned)][0]
    victim = world.request(victim_case, "both", "victim") if row["abort"] else None
    pages = _tight([*requests, *([victim] if victim else [])]) if row["pool"] == "tight" else None
    engine = world.engine(row["step_tokens"], pages)
    _warm(world, engine, [case for case, _, row in planned if row["prefix"] == "hit"])
    given_up = (victim, 2 + number % 9) if victim else None
    told = drive(engine, requests, every=number % 3, abort=given_up)
    world.check_over(engine)
    figures.preemptions += engine.stats().preemptions
    for request, (case, _, row) in zip(requests, planned, strict=True):
        _compare(request.id, told[request.id], truth[case], f"{case} {row}", figures)
        _count_hit(told[request.id], row, figures)
    if victim is not None:
        _compare_aborted(told[victim.id], truth[victim_case], f"{victim_case} aborted", figures)


def _count_hit(told: Told, row: Row, figures: Figures) -> None:
    hit = told.cached_tokens > 0
    figures.hits += hit
    assert not hit or row["prefix"] == "hit", "a prefix of another scope was served"
    forced = told.report.sources.get("forced")
    asked_nothing = forced is not None and forced.drafted == told.answer.tokens
    if row["prefix"] == "hit" and row["pool"] == "large":
        assert hit or asked_nothing, "what was computed before was not found"


def _tight(requests: Seq[GenerationRequest]) -> int:
    """Pages for the largest of them, and half of what all would need."""
    needs = [-(-(len(r.prompt) + r.max_tokens) // 16) for r in requests]
    return max(max(needs), sum(needs) // 2)


def _warm(world: World, engine: Engine, cases: Seq[Case]) -> None:
    """Have the prompts computed in their scopes, so that they are found there."""
    for case in dict.fromkeys(cases):
        request = world.request(case, "off", f"hit-{case.prompt}")
        # A grammar that forces the first token would spare the engine the prompt.
        request.constraint, request.max_tokens = None, 1
        drive(engine, [request])


def _compare(id: str, told: Told, truth: Answer, what: str, figures: Figures) -> None:
    figures.runs += 1
    drafted, accepted = told.report.totals()
    figures.drafted += drafted
    figures.accepted += accepted
    if told.answer != truth:
        figures.differing.append(f"{what}: {told.answer} instead of {truth}")


def _compare_aborted(told: Told, truth: Answer, what: str, figures: Figures) -> None:
    """What was told before the end is the beginning of the true text."""
    figures.aborted += told.answer.finish_reason == "abort"
    whole = told.answer == truth  # it was through before
    if not (whole or truth.text.startswith(told.answer.text)):
        figures.differing.append(f"{what}: {told.answer} instead of {truth}")
