"""How many tokens a source is asked for in a step, before it drafts: as many as pay, or none.

One call drafts for all sequences, and much of its cost is shared: so the sequences are asked
together, and what a call of each width costs (``draft_cost.py``) is held against what its tokens
are worth by what earlier drafts promised at each place (``yields.py``), the rows that verify them
paid. Nothing here looks at a draft of this step.

A source that doesn't pay is asked at growing distances for the width that comes nearest, from what
a quarter of a percent of the time saves up: such an ask is charged what it really took (a source
may have a long text to read first), so that asking in vain costs no more than that. A change of
load that makes the source pay wakes it at once. Where what sequences share of a call is next to
nothing, ``gate.py`` alone decides.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from typing import NamedTuple

from .draft_cost import DraftCost
from .gate import FARTHEST
from .yields import LEVELS, Yields

_PAYS = 1.005
"""Times plain decoding that a draft must promise."""
_ALIKE = 0.998
"""Of the best speed: a wider draft that promises so much is asked for, as more is seen of it."""
_PROBING_SHARE = 0.0025
_SAVED_CALLS = 8
"""What was not spent on asks in vain is kept for so many of them, at most."""
_SHARED_LITTLE = 0.0025
_RENEWED = 8
_WIDER = 64
"""Every so many calls one token more is asked for than pays, to know what it would bring."""
_BEGINNING = (0.5, 0.0, 0.5)
"""Parts of the full width that the first calls ask for (at least a token): they tell costs."""
_SAMPLES = 8
_RATE = 0.05


@dataclass(frozen=True, slots=True)
class Scene:
    """A step before its drafts: its sequences, rows and seconds; base: of a pass over rows;
    row_s: seconds of a drafted row beside its place in the pass, by width. plain_s: without rows
    that are computed anyway, drafts or not. unread: tokens of prompts a step and sequence."""

    sequences: int
    rows: int
    plain_s: float
    base: Callable[[float], float]
    row_s: Callable[[int], float]
    unread: float = 0.0


class Seen(NamedTuple):
    """A draft: for how many tokens it was asked, the gains that it promises, and what of its rows
    was paid for it (``Yields.saw``)."""

    width: int
    gains: Seq[float]
    paid: Seq[float] | None = None


@dataclass(slots=True)
class _Plan:
    """width: that pays, or 0; nearest: the best one above 0. fitted: the counts and seconds that it
    was made for."""

    width: int
    nearest: int
    fitted: tuple[float, ...]
    age: int = 0

    def fits(self, now: tuple[float, ...]) -> bool:
        return all(abs(a - b) * 8 <= b for a, b in zip(now, self.fitted, strict=True))


class Asking:
    """Of one source."""

    def __init__(self) -> None:
        self.cost = DraftCost()
        self.yields = Yields()
        self._plan: _Plan | None = None
        self._distance = self._wait = self._calls = 0
        self._usual: float | None = None
        self._longest = self._widest = 1
        self._unread, self._saved_s = 0.0, math.inf
        self._trying = False

    def width(self, joining: int, worth: float, most: int, scene: Scene) -> tuple[int, bool]:
        """Tokens to ask for, 0 to ``most``, and whether it is only to see how the source does.

        joining: the sequences that would be asked. worth: the sum of what their drafts bring, each
        as a factor of the source's usual.
        """
        self._unread, self._trying = scene.unread, False
        if self.cost.calls < len(_BEGINNING):
            return max(1, round(_BEGINNING[self.cost.calls] * most)), False
        if self._seconds(0, most) <= _SHARED_LITTLE * scene.plain_s:
            return most, False
        now = (joining, worth, most, scene.sequences, scene.plain_s)
        plan = self._plan
        due = self._wait == 0 and self._saved_s >= 0.0
        stale = plan is not None and plan.age >= _RENEWED and (plan.width or due)
        if plan is None or stale or not plan.fits(now):
            plan = self._plan = _Plan(*self._planned(joining, worth, most, scene), now)
        plan.age += 1
        cost_s = self._seconds(joining, plan.nearest)
        self._saved_s += _PROBING_SHARE * scene.plain_s
        self._saved_s = min(self._saved_s, _SAVED_CALLS * cost_s)
        if plan.width:
            self._distance, self._wait = self._distance // 2, 0
            self._calls += 1
            wider = self._calls % _WIDER == 0
            return min(plan.width + wider, most), False
        if self._wait > 0:
            self._wait -= 1
            return 0, False
        if self._saved_s < 0.0:
            return 0, False
        self._distance = min(max(1, 2 * self._distance), FARTHEST)
        self._wait, plan.age, self._trying = self._distance, _RENEWED, True
        return plan.nearest, True

    def pays_behind(self, worth: float, token_s: float, scene: Scene) -> bool:
        """Whether a call for one sequence pays behind another source's draft.

        worth: of what drafts usually bring; token_s: what a token costs in the step as it is. Where
        a source doesn't pay from the beginning it doesn't here.
        """
        if self.cost.calls < len(_BEGINNING):
            return True
        if self._seconds(0, self._widest) <= _SHARED_LITTLE * scene.plain_s:
            return True
        if self._plan is None or not self._plan.width or self._usual is None:
            return False
        cost_s = self._seconds(1, self._plan.width)
        return worth * self._usual * token_s >= _PAYS * cost_s

    def _planned(self, joining: int, worth: float, most: int, scene: Scene) -> tuple[int, int]:
        """The width that pays, or 0, and the best above 0; each with its best cut."""
        speeds: list[float] = []
        tokens, rows = [float(scene.sequences)] * len(LEVELS), [0.0] * len(LEVELS)
        base_s = scene.base(scene.rows)
        for width, place in enumerate(self.yields.places(most), start=1):
            draft_s, row_s = self._seconds(joining, width), scene.row_s(width)
            best = 0.0
            for i in range(len(LEVELS)):
                tokens[i] += worth * place.gains[i]
                rows[i] += joining * place.rows[i]
                pass_s = scene.base(scene.rows + rows[i]) - base_s
                seconds = scene.plain_s + draft_s + pass_s + rows[i] * row_s
                best = max(best, tokens[i] / seconds)
            speeds.append(best)
        top = max(speeds)
        nearest = max(i for i, speed in enumerate(speeds, start=1) if speed >= _ALIKE * top)
        pays = top * scene.plain_s >= _PAYS * scene.sequences
        return nearest if pays else 0, nearest

    def _seconds(self, sequences: int, width: int) -> float:
        """Of a call; asked for more than it can draw, a source does no more than that."""
        unread = sequences * self._unread
        return self.cost.seconds(sequences, self._drawn(width), unread)

    def _drawn(self, width: int) -> int:
        return min(width, self._longest) if self._longest < self._widest else width

    def one_more_s(self, width: int) -> float:
        """What each sequence adds to a call."""
        return self._seconds(1, width) - self._seconds(0, width)

    def called(
        self, seconds: float, sequences: int, width: int, longest: int, unread: int = 0
    ) -> None:
        """A call for so many tokens took so long; longest: of its drafts; unread: of the texts."""
        if self._trying:
            self._saved_s -= seconds
        self._longest, self._widest = max(self._longest, longest), max(self._widest, width)
        self.cost.saw(seconds, sequences, self._drawn(width), unread)

    def saw(self, drafts: Seq[Seen]) -> list[float]:
        """A call's drafts. Returns what each promises, as a factor of what the source's usually
        do."""
        stride = -(-len(drafts) // _SAMPLES)
        for draft in drafts[::stride]:
            self.yields.saw(draft.gains, draft.width, draft.paid)
        self.yields.faded(len(drafts))
        tokens = [sum(draft.gains) for draft in drafts]
        mean = sum(tokens) / len(drafts)
        usual = mean if self._usual is None else self._usual
        self._usual = usual = usual + _RATE * (mean - usual)
        return [one / usual if usual else 1.0 for one in tokens]
