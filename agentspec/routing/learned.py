"""The policy that learns: the least expected loss, and now and then another to keep knowing.

The loss of a request is its money and what a missed target counts. The chances follow Foster and
Rakhlin's inverse gap weighting (SquareCB, arXiv 2002.04926): an option that is worse by ``gap``
(in units of the usual loss) is taken with chance ``1 / (K + gamma * gap)``, the best with the rest.
With ``gamma = (K - 1) / exploration`` all exploring together costs at most ``exploration`` times
the usual loss a request, and it happens where it is cheap: on short prompts, at a session's start.
Moving a session in its middle is a gap of its whole cold cache. A floor keeps every option that
costs at most the usual loss more within reach, and one that was hardly ever tried is taken as equal
at the start of sessions.

Money is weighed by a price that a pacer moves (primal-dual, as in ParetoBandit, arXiv 2604.00136):
up while more is spent than the budget allows, down to nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .estimate import Predicted
from .policy import FEW, Option, Ranking, over_turns

_USUAL_AT_FIRST_USD = 0.01
_USUAL_KEEP = 0.98
_PACER_STEP = 0.02
_MOST_WEIGHT = 20.0


class Pacer:
    """The weight of money, 1.0 while the budget holds. budget: USD an hour; None: no limit."""

    def __init__(self, budget_usd_per_h: float | None):
        self._allowed_usd_per_s = None if budget_usd_per_h is None else budget_usd_per_h / 3600
        self._last_s: float | None = None
        self._usual_usd = 0.0
        self.weight = 1.0

    def spent(self, usd: float, at_s: float) -> None:
        """A request has cost so much. at_s: seconds of one clock."""
        if self._allowed_usd_per_s is None:
            return
        since_s = 0.0 if self._last_s is None else max(0.0, at_s - self._last_s)
        self._last_s = at_s if self._last_s is None else max(at_s, self._last_s)
        self._usual_usd += 0.02 * (usd - self._usual_usd)
        over = usd - self._allowed_usd_per_s * since_s
        step = _PACER_STEP * over / max(self._usual_usd, 1e-9)
        self.weight = min(_MOST_WEIGHT, max(1.0, self.weight + max(-0.5, min(0.5, step))))


class Learned:
    """draw: a number in [0, 1) for each decision."""

    name = "learned"

    def __init__(
        self, exploration: float, miss_usd: float, pacer: Pacer, draw: Callable[[], float]
    ):
        self._exploration = exploration
        self._miss_usd = miss_usd
        self._draw = draw
        self._usual_usd = _USUAL_AT_FIRST_USD
        self.pacer = pacer

    def loss_usd(self, option: Option, predicted: Predicted) -> float:
        money = self.pacer.weight * option.cost_nusd(predicted) / 1e9
        return money + self._miss_usd * (1.0 - predicted.met)

    def rank(self, options: Sequence[Option], turns: float) -> Ranking:
        scores = [over_turns(o, turns, self.loss_usd) for o in options]
        now = [self.loss_usd(o, o.now) for o in options]
        best = min(range(len(options)), key=lambda i: scores[i])
        starts = not any(option.home for option in options)
        new = [starts and self._is_new(option) for option in options]
        chances = self._chances(scores, now, best, new)
        self._usual_usd += (1.0 - _USUAL_KEEP) * (now[best] - self._usual_usd)
        chosen = self._drawn(chances, best)
        rest = sorted((i for i in range(len(options)) if i != chosen), key=lambda i: scores[i])
        reason = "the least expected loss" if chosen == best else "another than the best, to learn"
        return Ranking((chosen, *rest), chances, tuple(scores), reason, chosen != best)

    def _chances(
        self, scores: Sequence[float], now: Sequence[float], best: int, new: Sequence[bool]
    ) -> tuple[float, ...]:
        """The probability of each option; they add up to one."""
        count, usual = len(scores), max(self._usual_usd, 1e-9)
        if count == 1:
            return (1.0,)
        gamma = (count - 1) / self._exploration
        floor = self._exploration / (2.0 * count)
        chances = [0.0] * count
        for i in range(count):
            if i == best:
                continue
            gap = max(now[i] - now[best], scores[i] - scores[best], 0.0) / usual
            gap = 0.0 if new[i] else gap
            chance = 1.0 / (count + gamma * gap)
            chances[i] = max(chance, floor) if gap <= 1.0 else chance
        chances[best] = 1.0 - sum(chances)
        return tuple(chances)

    def _is_new(self, option: Option) -> bool:
        """A vendor without a known price is not tried for the sake of it."""
        priced = not option.sold or option.now.cost_nusd is not None
        return option.now.tried < FEW and priced

    def _drawn(self, chances: Sequence[float], best: int) -> int:
        left = self._draw()
        for i, chance in enumerate(chances):
            left -= chance
            if left < 0.0:
                return i
        return best
