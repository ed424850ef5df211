"""Adopt, adopt up to a concurrency, don't, or not decided: and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .figures import Acceptance, Arm, Interval, Ratio, Share

HALF = 0.5
"""The rule: drafts of a model of which less than half stands cost more than they bring as soon as
other requests wait for the same pass."""
P99_SLACK = 1.05
KV_FULL = 0.9


@dataclass(frozen=True, slots=True)
class Point:
    """One concurrency. plain, ratio, p99: None where there is no baseline."""

    concurrency: int
    drafted: Arm
    plain: Arm | None
    acceptance: Acceptance
    ratio: Ratio | None
    p99: Ratio | None

    @property
    def answer(self) -> str:
        """ "pays", "hurts", "undecided" or "unknown", by throughput."""
        if self.ratio is None:
            return "unknown"
        if self.ratio.interval is None:
            return "undecided"
        low, high = self.ratio.interval
        return "pays" if low >= 1.0 else "hurts" if high < 1.0 else "undecided"

    @property
    def rule(self) -> str:
        """ "holds", "fails", "undecided" of the half rule; "none": no such drafts; "unknown"."""
        if not self.acceptance.told:
            return "unknown"
        share = judged_share(self.acceptance)
        if share is None or share.rate is None:
            return "none"
        if share.interval is None:
            return "undecided"
        low, high = share.interval
        return "holds" if low >= HALF else "fails" if high < HALF else "undecided"


def judged_share(found: Acceptance) -> Share | None:
    """A model's drafts; where the server doesn't tell kinds apart, all that it tells."""
    for kind in ("model", "unknown"):
        if kind in found.shares and found.shares[kind].drafted:
            return found.shares[kind]
    return None


@dataclass(frozen=True, slots=True)
class Verdict:
    """word: "adopt", "adopt up to N", "do not adopt", "not decided", "no verdict"."""

    word: str
    reasons: list[str]


def judged(points: Sequence[Point]) -> Verdict:
    """points: ascending by concurrency."""
    reasons = [reason for point in points for reason in _reasons(point)]
    failed = sum(arm.failed for arm in _arms(points))
    if failed:
        reasons.insert(0, f"{failed} requests failed: {_first_error(points)}")
    return Verdict(_word(points, failed), reasons)


def _word(points: Sequence[Point], failed: int) -> str:
    answers = [point.answer for point in points]
    if all(answer == "unknown" for answer in answers):
        return "no verdict"
    good = 0
    for point in points:
        if point.answer != "pays" or point.rule == "fails" or _slower_tail(point):
            break
        good = point.concurrency
    if good == points[-1].concurrency:
        return "not decided" if failed else "adopt"
    bad = [p for p in points if p.answer == "hurts" or p.rule == "fails" or _slower_tail(p)]
    if good and bad and not failed:
        return f"adopt up to {good}"
    if bad and "pays" not in answers:
        return "do not adopt"
    if bad and bad[0] is points[0]:
        return "do not adopt"
    return "not decided"


def _slower_tail(point: Point) -> bool:
    """Whether the time a token of the slowest requests is surely worse."""
    found = point.p99
    return found is not None and found.interval is not None and found.interval[0] > P99_SLACK


def _reasons(point: Point) -> list[str]:
    at = f"At {point.concurrency}: "
    found = [at + _speed(point), at + _half(point)]
    if _slower_tail(point):
        assert point.p99
        found.append(at + f"P99 of the time a token is {_ratio(point.p99)} of plain decoding's.")
    used = point.drafted.kv_used
    if used is not None and used > KV_FULL:
        found.append(at + f"{used:.0%} of the K/V memory was in use: there is no headroom.")
    return found


def _speed(point: Point) -> str:
    if point.ratio is None:
        if point.plain is None:
            return "no baseline, so nothing to compare with."
        return "the endpoint doesn't count output tokens, so throughput is unknown."
    text = f"throughput is {_ratio(point.ratio)} of plain decoding: "
    words = {
        "pays": "speculation pays.",
        "hurts": "speculation costs.",
        "undecided": "the interval holds 1, or there are too few rounds: undecided.",
    }
    return text + words[point.answer]


def _half(point: Point) -> str:
    if point.rule == "unknown":
        return "the endpoint tells nothing of acceptance; the rule of one half can't be judged."
    if point.rule == "none":
        return "no model drafted anything; the rule of one half has nothing to judge."
    share = judged_share(point.acceptance)
    assert share is not None
    whose = "a model's drafts"
    if not point.acceptance.shares.get("model", Share()).drafted:
        whose = "drafts (the endpoint doesn't tell a model's from copied ones)"
    rate = f"{share.rate:.2f}{_interval(share.interval)} of {whose} stood"
    words = {
        "holds": "at least one half.",
        "fails": "under one half.",
        "undecided": "too few, or too near one half, to say.",
    }
    return f"{rate}: {words[point.rule]}"


def _ratio(found: Ratio) -> str:
    return f"{found.value:.2f}{_interval(found.interval)}"


def _interval(found: Interval | None) -> str:
    return f" ({found[0]:.2f} to {found[1]:.2f})" if found else ""


def _first_error(points: Sequence[Point]) -> str:
    return next((arm.first_error for arm in _arms(points) if arm.first_error), "")


def _arms(points: Sequence[Point]) -> list[Arm]:
    return [arm for point in points for arm in (point.drafted, point.plain) if arm]
