"""What blocks of answers come to: throughput, percentiles, acceptance, each with its interval.

Intervals are 95 %, by resampling (Efron's percentile bootstrap): of rounds for throughput, of
prompts for acceptance, of requests for P99. Fewer than ``LEAST`` of them give none; a P99 needs
``TAIL_LEAST`` in each arm, since resampling knows nothing of a tail that was never seen.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentspec.bench.stats import percentile

from .endpoint import Answer

COPIED = frozenset(("suffix", "suffix_tree", "ngram"))
FORCED = "forced"
FOREIGN = frozenset(("vllm", "sglang", "llamacpp", "usage"))
"""Whole servers: they don't tell which of their drafts a model wrote."""
LEAST = 6
"""Lowest and highest of six hold the median with 97 %, those of five with 94."""
TAIL_LEAST = 100
_RESAMPLES = 1000

Interval = tuple[float, float]


@dataclass(slots=True)
class Block:
    """One uninterrupted run of one arm. kv_used: the most seen; None: not told."""

    answers: list[Answer]
    wall_s: float
    kv_used: float | None = None

    @property
    def tok_s(self) -> float | None:
        """Output tokens a second of all requests; None where the server counts none."""
        good = [answer for answer in self.answers if answer.error is None]
        counts = [answer.out_tokens for answer in good if answer.out_tokens is not None]
        if not counts or len(counts) < len(good):
            return None
        return sum(counts) / self.wall_s


def resampled(
    values: Sequence[Any], figure: Callable[[Sequence[Any]], float | None], seed: int = 0
) -> Interval | None:
    """None where there are too few, or the figure can't be had of a sample."""
    if len(values) < LEAST:
        return None
    draw = random.Random(seed)
    found = [figure(draw.choices(values, k=len(values))) for _ in range(_RESAMPLES)]
    known = [value for value in found if value is not None]
    if not known:
        return None
    return percentile(known, 2.5), percentile(known, 97.5)


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds; None: nothing to take them of."""

    n: int
    p50_ms: float | None
    p99_ms: float | None

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Latency:
        if not seconds:
            return cls(0, None, None)
        return cls(len(seconds), *(1e3 * percentile(seconds, part) for part in (50, 99)))


@dataclass(frozen=True, slots=True)
class Arm:
    """All rounds of one way at one concurrency."""

    requests: int
    failed: int
    first_error: str | None
    tok_s: float | None
    ttft: Latency
    tpot: Latency
    e2e: Latency
    kv_used: float | None

    @classmethod
    def of(cls, blocks: Sequence[Block]) -> Arm:
        answers = [answer for block in blocks for answer in block.answers]
        good = [answer for answer in answers if answer.error is None]
        rates = [block.tok_s for block in blocks if block.tok_s is not None]
        used = [block.kv_used for block in blocks if block.kv_used is not None]
        errors = [answer.error for answer in answers if answer.error is not None]
        return cls(
            requests=len(answers),
            failed=len(errors),
            first_error=errors[0] if errors else None,
            tok_s=statistics.median(rates) if rates else None,
            ttft=Latency.of([answer.ttft_s for answer in good if answer.timed]),
            tpot=Latency.of([a.tpot_s for a in good if a.tpot_s is not None]),
            e2e=Latency.of([answer.e2e_s for answer in good]),
            kv_used=max(used, default=None),
        )


@dataclass(frozen=True, slots=True)
class Share:
    """Drafted and accepted tokens of one kind of draft; rate: accepted of drafted."""

    drafted: int = 0
    accepted: int = 0
    interval: Interval | None = None

    @property
    def rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None


@dataclass(frozen=True, slots=True)
class Acceptance:
    """shares: by kind: "model", "copied" (suffix, n-gram), "forced" (by a grammar), "unknown".

    told: requests whose answer told anything; length: tokens a pass, the bonus token included;
    None where passes aren't told.
    """

    told: int
    requests: int
    shares: dict[str, Share] = field(default_factory=dict)
    length: float | None = None


def kind_of(source: str, foreign: str) -> str:
    """foreign: what the user says of a server's drafts: "model", "copied" or "unknown"."""
    if source == FORCED:
        return "forced"
    if source in COPIED:
        return "copied"
    return foreign if source in FOREIGN else "model"


def acceptance(answers: Sequence[Answer], foreign: str) -> Acceptance:
    """Intervals are by prompt: where one comes again, greedy text is accepted as before, so that
    its repeats tell nothing new."""
    good = [answer for answer in answers if answer.error is None]
    told = [answer for answer in good if answer.sources is not None]
    counts: dict[str, dict[int, tuple[int, int]]] = {}
    for answer in told:
        for source, (drafted, accepted) in (answer.sources or {}).items():
            of_kind = counts.setdefault(kind_of(source, foreign), {})
            before = of_kind.get(answer.prompt, (0, 0))
            of_kind[answer.prompt] = (before[0] + drafted, before[1] + accepted)
    shares = {kind: _share(list(pairs.values())) for kind, pairs in counts.items()}
    return Acceptance(len(told), len(good), shares, _length(told))


def _share(pairs: Sequence[tuple[int, int]]) -> Share:
    drafted, accepted = (sum(pair[i] for pair in pairs) for i in (0, 1))
    return Share(drafted, accepted, resampled(pairs, _rate))


def _rate(pairs: Sequence[tuple[int, int]]) -> float | None:
    drafted = sum(pair[0] for pair in pairs)
    return sum(pair[1] for pair in pairs) / drafted if drafted else None


def _length(told: Sequence[Answer]) -> float | None:
    steps = sum(answer.steps for answer in told)
    if not steps or any(not answer.steps and _drafts(answer)[1] for answer in told):
        return None
    return 1 + sum(_drafts(answer)[1] for answer in told) / steps


def _drafts(answer: Answer) -> tuple[int, int]:
    pairs = [pair for source, pair in (answer.sources or {}).items() if source != FORCED]
    return sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)


@dataclass(frozen=True, slots=True)
class Ratio:
    """Speculation over plain decoding. interval: None of too few rounds."""

    value: float
    interval: Interval | None


def throughput(plain: Sequence[Block], drafted: Sequence[Block]) -> Ratio | None:
    """Median ratio of each round's two blocks; None where tokens aren't counted."""
    pairs = [(a.tok_s, b.tok_s) for a, b in zip(plain, drafted, strict=True)]
    ratios = [b / a for a, b in pairs if a and b is not None]
    if not ratios:
        return None
    return Ratio(statistics.median(ratios), resampled(ratios, statistics.median))


def p99_ratio(plain: Sequence[Block], drafted: Sequence[Block]) -> Ratio | None:
    """Of the time a token, over requests of all rounds."""
    first, second = (
        [a.tpot_s for block in blocks for a in block.answers if not a.error and a.tpot_s]
        for blocks in (plain, drafted)
    )
    if not first or not second:
        return None
    value = percentile(second, 99) / percentile(first, 99)
    if min(len(first), len(second)) < TAIL_LEAST:
        return Ratio(value, None)
    draw = random.Random(0)
    found = [
        percentile(draw.choices(second, k=len(second)), 99)
        / percentile(draw.choices(first, k=len(first)), 99)
        for _ in range(_RESAMPLES)
    ]
    return Ratio(value, (percentile(found, 2.5), percentile(found, 97.5)))
