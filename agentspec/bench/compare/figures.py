"""Rows of the table, and quotients of its methods, out of what was run.

A shot in which any answer looped is left out for every method, so that all rows of a cell (a
workload at a temperature) rest on the same texts.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import Any

from .drive import Answer
from .harness import BASELINE, Shot
from .methods import UNFORCED, Variant
from .resample import RESOLVED, Draws, Estimate
from .rounds import by_position, calibration, sweep, widths

COLUMNS = [
    *("workload", "temperature", "schedule", "method", "masked", "accepted_length", "ci95"),
    *("speedup", "speedup_ci95", "tok_s", "acceptance", "forced_share", "draft_ms", "verify_ms"),
    *("n", "looped", "resolves_5_percent", "n_for_5_percent"),
]


@dataclass(slots=True)
class Sums:
    """One method over the counted shots. Lists hold one sum a prompt, all in the same order."""

    steps: list[float] = field(default_factory=list)
    drafts: list[float] = field(default_factory=list)
    tokens: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    def add(self, answers: Seq[Answer]) -> None:
        """One prompt more, with all its samples."""
        self.answers += answers
        self.steps.append(sum(a.steps for a in answers))
        self.drafts.append(sum(a.accepted for a in answers))
        self.tokens.append(sum(a.tokens for a in answers))
        self.seconds.append(sum(a.seconds for a in answers))

    @property
    def lengths(self) -> tuple[list[float], list[float]]:
        """Tops and bottoms of the accepted length, the bonus token in."""
        return [s + d for s, d in zip(self.steps, self.drafts, strict=True)], self.steps

    @property
    def pace(self) -> tuple[list[float], list[float]]:
        return self.tokens, self.seconds


@dataclass(slots=True)
class Cell:
    """One workload at one temperature. draws: one set of resamples for all of it."""

    workload: str
    temperature: float
    seeded: bool | None
    grammar: bool
    looped: int
    shots: list[Shot]
    draws: Draws
    sums: dict[Variant, Sums] = field(default_factory=dict)

    def masked(self, variant: Variant) -> bool:
        """Whether its drafts (without any: its text) were made under the grammar."""
        return variant.masked and self.grammar and variant.method.name != UNFORCED

    @property
    def prompts(self) -> int:
        return len({shot.item.id for shot in self.shots})


def cells(shots: Iterable[Shot], seed: int = 0) -> list[Cell]:
    """In the order in which they were run; a cell in which everything looped has no sums."""
    groups: dict[tuple[str, float], list[Shot]] = defaultdict(list)
    for shot in shots:
        groups[shot.item.workload, shot.sampling.temperature].append(shot)
    return [_cell(workload, t, group, seed) for (workload, t), group in groups.items()]


def _cell(workload: str, temperature: float, group: Seq[Shot], seed: int) -> Cell:
    counted = [shot for shot in group if not shot.looped]
    seeded = None if temperature == 0 else group[0].sampling.seed is not None
    grammar = any(shot.item.grammar for shot in group)
    prompts: dict[str, list[Shot]] = defaultdict(list)
    for shot in counted:
        prompts[shot.item.id].append(shot)
    cell = Cell(
        workload,
        temperature,
        seeded,
        grammar,
        len(group) - len(counted),
        counted,
        Draws(max(len(prompts), 1), seed),
    )
    for variant in dict.fromkeys(v for shot in counted for v in shot.answers):
        sums = Sums()
        for of_prompt in prompts.values():
            sums.add([s.answers[variant] for s in of_prompt if variant in s.answers])
        cell.sums[variant] = sums
    return cell


def rows(cell: Cell) -> list[dict[str, Any]]:
    return [_row(cell, variant, sums) for variant, sums in cell.sums.items() if sums.answers]


def _row(cell: Cell, variant: Variant, sums: Sums) -> dict[str, Any]:
    length = cell.draws.ratio(*sums.lengths)
    speedup = cell.draws.quotient(sums.pace, _same_prompts(cell.sums[BASELINE], sums).pace)
    estimates = [e for e in (length, speedup) if e is not None]
    needed = [e.prompts_needed(cell.prompts) for e in estimates]
    return {
        "method": variant.method.name,
        "workload": cell.workload,
        "masked": cell.masked(variant),
        "temperature": cell.temperature,
        "accepted_length": _value(length),
        "ci95": None if length is None else length.ci95(),
        "speedup": _value(speedup),
        "n": sum(1 for steps in sums.seconds if steps),
        "speedup_ci95": None if speedup is None else speedup.ci95(),
        "schedule": variant.schedule,
        "seeded": cell.seeded,
        "sources": list(variant.method.sources),
        "looped": cell.looped,
        "samples": len(sums.answers),
        "resolves_5_percent": all(e.half is not None and e.half <= RESOLVED for e in estimates),
        "n_for_5_percent": max((n for n in needed if n is not None), default=None),
        **_counts(sums.answers),
        **_rounds(sums.answers, fixed=variant.schedule not in ("adaptive", "off")),
    }


def _same_prompts(plain: Sums, other: Sums) -> Sums:
    """``plain`` without the prompts of which the other method has nothing."""
    has = [1.0 if seconds else 0.0 for seconds in other.seconds]
    return Sums(
        tokens=[t * h for t, h in zip(plain.tokens, has, strict=True)],
        seconds=[s * h for s, h in zip(plain.seconds, has, strict=True)],
    )


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else round(estimate.value, 4)


def _counts(answers: Seq[Answer]) -> dict[str, Any]:
    """Sums and means over all answers, prompts not told apart."""

    def total(read: Callable[[Answer], float]) -> float:
        return sum(map(read, answers))

    steps, drafted, out = (total(r) for r in (_steps, _drafted, _out))
    seconds = total(lambda a: a.seconds)
    forced = total(lambda a: a.forced)
    return {
        "tok_s": _share(total(lambda a: a.tokens), seconds),
        "acceptance": _share(total(lambda a: a.accepted), drafted),
        "forced_share": _share(forced, out),
        "draft_ms": _share(total(lambda a: a.busy.draft) / 1000, steps),
        "verify_ms": _share(total(lambda a: a.busy.decode) / 1000, steps),
        "grammar_ms": _share(total(lambda a: a.busy.grammar) / 1000, steps),
        "steps": steps,
        "drafted": drafted,
        "accepted": total(lambda a: a.accepted),
        "forced_tokens": forced,
        "out_tokens": out,
    }


def _steps(answer: Answer) -> int:
    return answer.steps


def _drafted(answer: Answer) -> int:
    return answer.drafted


def _out(answer: Answer) -> int:
    return answer.out_tokens


def _share(top: float, bottom: float) -> float | None:
    return round(top / bottom, 4) if bottom else None


def _rounds(answers: Seq[Answer], *, fixed: bool) -> dict[str, Any]:
    """fixed: the schedule did not look at confidences, so that they can be judged."""
    found = list(itertools.chain.from_iterable(a.rounds for a in answers))
    return {
        "by_position": by_position(found),
        "widths": widths(found, sum(a.steps for a in answers)),
        "threshold_sweep": sweep(found) if fixed else [],
        "calibration_error": calibration(found) if fixed else {},
    }


def pairs(cell: Cell) -> list[dict[str, Any]]:
    """Of every two rows of a cell under one schedule the later over the earlier one, in pairs by
    prompt; plain decoding belongs to every schedule. Of one method masked over blind drafting."""
    found = []
    # A prompt that one of both lacks (unforced) would be compared with nothing.
    whole = [variant for variant, sums in cell.sums.items() if all(sums.seconds)]
    for earlier, later in itertools.combinations(whole, 2):
        masks = earlier.method == later.method and earlier.schedule == later.schedule
        plain = "off" in (earlier.schedule, later.schedule)
        same = earlier.schedule == later.schedule and earlier.masked == later.masked
        if masks:
            found.append(_pair(cell, *sorted((earlier, later), key=lambda v: not v.masked)))
        elif plain or same:
            found.append(_pair(cell, later, earlier))
    return found


def _pair(cell: Cell, one: Variant, other: Variant) -> dict[str, Any]:
    a, b = cell.sums[one], cell.sums[other]
    length = cell.draws.quotient(a.lengths, b.lengths)
    pace = cell.draws.quotient(a.pace, b.pace)
    return {
        "workload": cell.workload,
        "temperature": cell.temperature,
        "schedule": one.schedule if one.schedule != "off" else other.schedule,
        "a": one.method.name,
        "b": other.method.name,
        "a_masked": cell.masked(one),
        "b_masked": cell.masked(other),
        "accepted_length_ratio": _value(length),
        "accepted_length_ci95": None if length is None else length.ci95(),
        "speed_ratio": _value(pace),
        "speed_ci95": None if pace is None else pace.ci95(),
        "n": cell.prompts,
    }
