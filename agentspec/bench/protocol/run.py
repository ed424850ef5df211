"""The check itself: blocks of both arms, interleaved, over all concurrencies; then the document."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any

from agentspec.bench import report
from agentspec.bench.load_cases import mixed
from agentspec.bench.workloads import Prompt

from .endpoint import Answer, Endpoint
from .figures import Arm, Block, acceptance, p99_ratio, throughput
from .verdict import Point, judged

POLL_S = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """count: requests of a block for each stream. foreign: of ``figures.kind_of``. draft: what was
    loaded for this, None: nothing."""

    concurrency: Sequence[int]
    workloads: Sequence[str]
    count: int
    rounds: int
    max_tokens: int
    foreign: str = "unknown"
    draft: str | None = None
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Arms:
    """plain: None where nothing decodes without drafts. why: where it is had from, or why not."""

    drafted: Endpoint
    plain: Endpoint | None
    why: str

    @classmethod
    def of(cls, drafted: Endpoint, baseline: Endpoint | None) -> Arms:
        if baseline is not None:
            return cls(drafted, baseline, f"baseline: {baseline.url} ({baseline.kind})")
        if drafted.switches:
            return cls(drafted, drafted, "baseline: the same endpoint, speculation off by request")
        why = (
            f"no baseline: a request can't switch speculation off at {drafted.kind}; "
            "give --baseline-url of the same model served without it"
        )
        return cls(drafted, None, why)


class Rig:
    """Sends blocks. Prompts of one round are the same in both arms; the next round has others, as
    long as there are others: a greedy answer that comes again tells nothing new of acceptance."""

    def __init__(self, plan: Plan, arms: Arms):
        self._plan = plan
        self._arms = arms
        self._numbers = itertools.count()

    async def block(
        self, speculate: bool, concurrency: int, prompts: Sequence[tuple[int, Prompt]]
    ) -> Block:
        """One closed loop: as one ends the next comes. prompts: with their numbers."""
        endpoint = self._arms.drafted if speculate else self._arms.plain
        assert endpoint is not None
        coming, answers = iter(prompts), list[Answer]()

        async def stream() -> None:
            for number, prompt in coming:
                body = endpoint.body(
                    prompt.body,
                    self._plan.max_tokens,
                    speculate=speculate,
                    fresh=f"protocol-{next(self._numbers)}-{time.time_ns():x}",
                )
                answers.append(await endpoint.ask(body, number))

        seen: list[float] = []
        watch = asyncio.create_task(_watched(endpoint, seen))
        start_s = endpoint.clock()
        await asyncio.gather(*(stream() for _ in range(concurrency)))
        wall_s = endpoint.clock() - start_s
        watch.cancel()
        with suppress(asyncio.CancelledError):
            await watch
        return Block(answers, wall_s, max(seen, default=None))

    async def point(self, concurrency: int) -> Point:
        """All rounds of one concurrency; the first of each arm is not counted."""
        plan = self._plan
        draw = random.Random(plan.seed + concurrency)
        arms = [True] if self._arms.plain is None else [True, False]
        blocks: dict[bool, list[Block]] = {True: [], False: []}
        size = plan.count * concurrency
        prompts = numbered(mixed(plan.workloads, plan.seed), size * plan.rounds)
        for number in range(plan.rounds + 1):
            for speculate in draw.sample(arms, len(arms)):
                chosen = prompts[size * (number - 1) : size * number] or prompts[:concurrency]
                arm = "with drafts" if speculate else "plain"
                at = f"concurrency {concurrency}, round {number} of {plan.rounds}, {arm}"
                report.progress(f"{at}: {len(chosen)} requests ...")
                block = await self.block(speculate, concurrency, chosen)
                if number:
                    blocks[speculate].append(block)
                rate = "?" if block.tok_s is None else f"{block.tok_s:.1f}"
                report.progress(f"{at}: {rate} tok/s")
        return pointed(concurrency, blocks[True], blocks[False], plan.foreign)


def numbered(prompts: Iterator[Prompt], count: int) -> list[tuple[int, Prompt]]:
    """The first ``count`` of them; one that comes again has the number that it had."""
    numbers: dict[int, int] = {}
    chosen = list(itertools.islice(prompts, count))
    return [(numbers.setdefault(id(prompt), len(numbers)), prompt) for prompt in chosen]


async def _watched(endpoint: Endpoint, seen: list[float]) -> None:
    """Note the share of K/V memory in use, as long as it is told."""
    while True:
        used = await endpoint.kv_used()
        if used is None:
            return
        seen.append(used)
        await asyncio.sleep(POLL_S)


def pointed(
    concurrency: int, drafted: Sequence[Block], plain: Sequence[Block], foreign: str
) -> Point:
    """plain: empty where there is no baseline."""
    answers = [answer for block in drafted for answer in block.answers]
    return Point(
        concurrency,
        Arm.of(drafted),
        Arm.of(plain) if plain else None,
        acceptance(answers, foreign),
        throughput(plain, drafted) if plain else None,
        p99_ratio(plain, drafted) if plain else None,
    )


async def measured(plan: Plan, arms: Arms) -> list[Point]:
    rig = Rig(plan, arms)
    return [await rig.point(concurrency) for concurrency in sorted(set(plan.concurrency))]


def document(
    plan: Plan, arms: Arms, points: Sequence[Point], memory: dict[str, Any]
) -> dict[str, Any]:
    """What is written; ``results`` has a row an arm and concurrency."""
    verdict = judged(points)
    return report.build(
        [row for point in points for row in rows(point)],
        verdict=verdict.word,
        reasons=verdict.reasons,
        endpoint={"url": arms.drafted.url, "kind": arms.drafted.kind, "model": arms.drafted.model},
        baseline=arms.why,
        draft=plan.draft,
        acceptance=[_accepted(point) for point in points],
        memory=memory,
        plan={name: getattr(plan, name) for name in Plan.__dataclass_fields__},
    )


def rows(point: Point) -> list[dict[str, Any]]:
    found = []
    for arm, one in (("plain", point.plain), ("speculative", point.drafted)):
        if one is None:
            continue
        row: dict[str, Any] = {"concurrency": point.concurrency, "arm": arm, "tok_s": one.tok_s}
        for name in ("ttft", "tpot", "e2e"):
            latency = getattr(one, name)
            row[f"{name}_p50_ms"], row[f"{name}_p99_ms"] = latency.p50_ms, latency.p99_ms
        row |= {"n": one.requests, "failed": one.failed, "kv_used": one.kv_used}
        if arm == "speculative" and point.ratio:
            low, high = point.ratio.interval or (None, None)
            row |= {"over_plain": point.ratio.value, "low": low, "high": high}
            row["answer"] = point.answer
        found.append(row)
    return found


def _accepted(point: Point) -> dict[str, Any]:
    found = point.acceptance
    shares = {kind: asdict(one) | {"rate": one.rate} for kind, one in found.shares.items()}
    return {
        "concurrency": point.concurrency,
        "told": found.told,
        "requests": found.requests,
        "accepted_length": found.length,
        "rule": point.rule,
        "shares": shares,
    }
