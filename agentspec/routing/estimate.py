"""What a request will take at a backend: from measurements by task class, load and cache.

    token_s  = step_s(load) / accepted length(class) * what the class adds
    ttft_s   = base + fresh tokens * prefill + load * queue
    cost     = fresh * a + cached * b + out * c, in nano-USD; listed prices, else measured ones

The accepted length is tokens a step of the engine; a server that tells no steps is taken to do one
a token. ``step_s`` and ``ttft_s`` are lines that forget (``line.py``), all else are means that
forget, drawn from special to general (``faded.py``). Each prediction carries its doubt.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec

from .faded import Ratio, Tree
from .kept import Kept
from .line import Line, within
from .outcome import Outcome, Target
from .taskclass import TaskClass

Chain = tuple[tuple[str, ...], ...]
_KILO = 1000.0
_SOLD_CACHED = 0.1
"""A vendor's price of a cached token, of a fresh one's, while none was billed: what most ask."""


class Tariff(msgspec.Struct, frozen=True):
    """Nano-USD a token, where a price list says so."""

    fresh: float
    cached: float
    out: float


class Work(msgspec.Struct, frozen=True):
    """What is to be done at one backend. Tokens. load: requests that are there already; model: its
    name there."""

    task: TaskClass
    in_tok: float
    cached_tok: float
    load: float
    most_out_tok: float = math.inf
    model: str = ""


class Predicted(msgspec.Struct, frozen=True):
    """What to expect. met: the chance that the target is met and the answer is right, taking the
    expected times as true: that little is known makes a backend neither better nor worse.

    cost_nusd: None where no price is known. doubt: the relative standard deviation of the times.
    measured: how many fresh measurements of the backend this rests on; tried: how often it was
    asked at all.
    """

    ttft_s: float
    token_s: float
    out_tok: float
    cached_tok: float
    cost_nusd: float | None
    met: float
    accepted_length: float
    doubt: float
    measured: float
    tried: int = 0

    @property
    def e2e_s(self) -> float:
        return self.ttft_s + self.token_s * max(self.out_tok - 1.0, 0.0)


class _Pace:
    """The two lines of one backend. What load adds is believed slowly: in a few measurements it
    can't be told from what their prompts add, and it would be carried to other loads."""

    def __init__(self, half_life: float):
        self.step_s = Line((0.03, 0.0003), (1.0, 30.0), (0.5, 5.0), half_life)
        self.ttft_s = Line((0.3, 0.05, 0.003), (1.0, 10.0, 30.0), (0.5, 0.5, 20.0), half_life)


@dataclass(frozen=True, slots=True)
class _Known:
    """Of one backend and class. The spreads are variances of logarithms, the doubts of their means;
    right: the chance of an answer without error whose calls are valid; cold, warm: shares found in
    the cache of a new prompt, and of what lies there."""

    pace: _Pace
    length: float
    token_factor: float
    token_spread: float
    token_doubt: float
    first_factor: float
    first_spread: float
    first_doubt: float
    out_tok: float
    right: float
    cold: float
    warm: float

    def cached_tok(self, in_tok: float, seen_tok: float) -> float:
        """Prompt tokens that the backend will find in its cache, of which it has seen so many."""
        return max(self.cold * in_tok, self.warm * min(seen_tok, in_tok))


class _Steady(msgspec.Struct, frozen=True):
    """Of a request at one backend, what its cache doesn't change. met: the chance of a right answer
    at the wanted time a token; doubt: of that time; measured, tried: as ``Predicted`` has them."""

    token_s: float
    doubt: float
    met: float
    out_tok: float
    tariff: Tariff | None
    measured: float
    tried: int


class Estimator:
    """Learns from outcomes, in the order in which they are handed in.

    tariff: listed prices of (backend, model, input tokens), if any. fleets: of backends that are
    equal engines, which are measured together. sold: the vendors' backends.
    """

    def __init__(
        self,
        half_life: float,
        target: Target,
        *,
        tariff: Callable[[str, str, float], Tariff | None] = lambda *_: None,
        fleets: Mapping[str, str] | None = None,
        sold: frozenset[str] = frozenset(),
    ):
        self._sold = sold
        self._half_life = half_life
        self._target = target
        self._tariff = tariff
        self._fleets = fleets or {}
        self._paces: dict[str, _Pace] = {}
        self._length = Tree(0.0, 0.05, half_life)  # log of tokens a step
        self._extra = Tree(0.0, 0.03, half_life)  # log of token_s over the line's
        self._first = Tree(0.0, 0.08, half_life)  # log of ttft_s over the line's
        self._out = Tree(math.log(200.0), 1.0, half_life)  # log of tokens
        self._errors = Tree(0.02, 0.02, half_life)
        self._valid = Tree(0.98, 0.02, half_life)
        self._warm = Tree(0.9, 0.04, half_life)  # share found of what lies in the cache
        self._cold = Tree(0.05, 0.04, half_life)  # share found of a prompt seen for the first time
        self._price = Ratio(min(half_life, 20.0))
        self._unmeasured = _Pace(half_life)
        self._kept = Kept(self._worked_out, self._of)
        self._tried: dict[str, int] = {}
        self._labels: dict[tuple[str, str], str] = {}
        self.tick = 0

    def _of(self, backend: str, model: str) -> str:
        label = self._labels.get((backend, model))
        if label is None:
            label = self._labels[backend, model] = f"{self._fleets.get(backend, backend)} {model}"
        return label

    def outlook(self, backend: str, work: Work, seen_tok: float) -> tuple[Predicted, Predicted]:
        """Of a request, and of one like it that follows there. seen_tok: of its prompt, what the
        backend has seen; ``work.cached_tok`` is not looked at."""
        known = self._known(backend, work.model, work.task)
        steady = self._steady(backend, known, work)
        cached = known.cached_tok(work.in_tok, seen_tok)
        warm = known.cached_tok(work.in_tok, work.in_tok)
        now = self._predicted(known, steady, work, cached)
        return now, self._predicted(known, steady, work, warm) if warm > cached else now

    def predict(self, backend: str, work: Work) -> Predicted:
        """Pure, but for what it remembers of what it has worked out."""
        known = self._known(backend, work.model, work.task)
        return self._predicted(known, self._steady(backend, known, work), work, work.cached_tok)

    def _steady(self, backend: str, known: _Known, work: Work) -> _Steady:
        """What the cache doesn't change."""
        steps, line = (1.0, work.load), known.pace.step_s
        step_s = line.at(steps)
        token_s = step_s * known.token_factor
        return _Steady(
            token_s,
            known.token_spread * line.doubt(steps, step_s, self.tick) + known.token_doubt,
            known.right * within(self._target.token_s, token_s, known.token_spread),
            min(known.out_tok, work.most_out_tok),
            self._tariff_of(backend, work),
            known.pace.ttft_s.weight(self.tick),
            self._tried.get(self._of(backend, work.model), 0),
        )

    def _predicted(
        self, known: _Known, steady: _Steady, work: Work, cached_tok: float
    ) -> Predicted:
        fresh_tok, line = max(work.in_tok - cached_tok, 1.0), known.pace.ttft_s
        prompt = (1.0, fresh_tok / _KILO, work.load)
        base_s = line.at(prompt)
        ttft_s = base_s * known.first_factor
        doubt = known.first_spread * line.doubt(prompt, base_s, self.tick) + known.first_doubt
        tariff, cost_nusd = steady.tariff, None
        if tariff is not None:
            cost_nusd = fresh_tok * tariff.fresh + cached_tok * tariff.cached
            cost_nusd += steady.out_tok * tariff.out
        return Predicted(
            ttft_s,
            steady.token_s,
            steady.out_tok,
            cached_tok,
            cost_nusd,
            steady.met * within(self._target.ttft_s, ttft_s, known.first_spread),
            known.length,
            math.sqrt(min(steady.doubt + doubt, 4.0)),
            steady.measured,
            steady.tried,
        )

    def _known(self, backend: str, model: str, task: TaskClass) -> _Known:
        return self._kept.at(backend, model, task, self.tick)

    def _worked_out(self, backend: str, model: str, task: TaskClass) -> _Known:
        """What load and prompt don't change."""
        label, tick = self._of(backend, model), self.tick
        mine, errors = _under(label, task), _under(backend, task)[:2]
        length = self._length.at(mine, tick)
        extra, first = self._extra.beside(mine, tick), self._first.beside(mine[:2], tick)
        right = 1.0 - min(max(self._errors.at(errors, tick).mean, 0.0), 1.0)
        if task.kind in ("tool", "plan", "json"):
            right *= min(max(self._valid.at(mine[:2], tick).mean, 0.0), 1.0)
        return _Known(
            pace=self._paces.get(label) or self._unmeasured,
            length=math.exp(length.mean),
            token_factor=math.exp(extra.mean - length.mean),
            token_spread=extra.variance,
            token_doubt=extra.doubt + length.doubt,
            first_factor=math.exp(first.mean),
            first_spread=first.variance,
            first_doubt=first.doubt,
            out_tok=math.exp(self._out.at(task.chain(), tick).mean),
            right=right,
            cold=self._cold.at(_caches(label, task), tick).mean,
            warm=self._warm.at(((), (label,)), tick).mean,
        )

    def _tariff_of(self, backend: str, work: Work) -> Tariff | None:
        """Listed prices, else measured ones; None where neither is known."""
        listed = self._tariff(backend, work.model, work.in_tok)
        if listed is not None:
            return listed
        label, prices = self._of(backend, work.model), self._price
        fresh = prices.at((label, "fresh"))
        out = prices.at((label, "out"), (label, "out", work.task.kind))
        if fresh is None and out is None:
            return None
        cached = prices.at((label, "cached"))
        if cached is None:
            cached = (fresh or 0.0) * _SOLD_CACHED if backend in self._sold else 0.0
        return Tariff(fresh or 0.0, cached, out or 0.0)

    def learn(self, outcome: Outcome, seen_tok: int = 0) -> None:
        """One outcome. seen_tok: of its prompt, what its backend had seen of the session before.

        A client that left tells of no failure, and a refusal that is the request's own neither.
        """
        self.tick += 1
        self._learn(outcome, seen_tok)
        self._kept.renew(outcome.backend, self.tick)

    def _learn(self, outcome: Outcome, seen_tok: int) -> None:
        label = self._of(outcome.backend, outcome.model)
        mine, errors = _under(label, outcome.task), _under(outcome.backend, outcome.task)[:2]
        self._tried[label] = self._tried.get(label, 0) + 1
        self._kept.measured(label, outcome.backend, *outcome.failed)
        for name in outcome.failed:
            self._errors.add(_under(name, outcome.task)[:2], 1.0, self.tick)
        if outcome.status == "error":
            if outcome.blame and outcome.backend:
                self._errors.add(errors, 1.0, self.tick)
            return
        self._learn_times(outcome, label, mine)
        if outcome.status != "ok":
            return
        self._errors.add(errors, 0.0, self.tick)
        if outcome.calls:
            self._valid.add(mine[:2], outcome.calls_valid / outcome.calls, self.tick)
        if outcome.out_tok and not outcome.cut:
            self._out.add(outcome.task.chain(), math.log(outcome.out_tok), self.tick)
        self._learn_cache(outcome, label, seen_tok)
        self._learn_prices(outcome, label)

    def _learn_times(self, outcome: Outcome, label: str, mine: Chain) -> None:
        pace = self._paces.get(label)
        if pace is None:
            pace = self._paces[label] = _Pace(self._half_life)
        tick, load = self.tick, outcome.load or 0.0
        if outcome.steps > 0:
            tokens = outcome.steps + outcome.accepted
            self._length.add(mine, math.log(tokens / outcome.steps), tick)
        fresh = max(outcome.in_tok - outcome.cached_tok, 1)
        prompt, steps = (1.0, fresh / _KILO, load), (1.0, load)
        ttft_s, token_s = self._times(outcome, pace, prompt, steps, mine)
        if ttft_s is not None and ttft_s > 0 and outcome.in_tok:
            self._first.add(mine[:2], math.log(ttft_s / pace.ttft_s.at(prompt)), tick)
            pace.ttft_s.add(prompt, ttft_s, tick)
        if token_s is not None and token_s > 0:
            length = math.exp(self._length.at(mine, tick).mean)
            line = pace.step_s.at(steps)
            self._extra.add(mine, math.log(token_s * length / line), tick)
            pace.step_s.add(steps, token_s * length, tick)

    def _times(
        self,
        outcome: Outcome,
        pace: _Pace,
        prompt: tuple[float, ...],
        steps: tuple[float, ...],
        mine: Chain,
    ) -> tuple[float | None, float | None]:
        """(ttft_s, token_s). An answer in one piece tells their sum: both are off by one factor."""
        if outcome.ttft_s is not None or outcome.e2e_s is None or outcome.status != "ok":
            return outcome.ttft_s, outcome.token_s
        length = math.exp(self._length.at(mine, self.tick).mean)
        ttft_s, token_s = pace.ttft_s.at(prompt), pace.step_s.at(steps) / length
        expected_s = ttft_s + token_s * max(outcome.out_tok - 1, 0)
        factor = outcome.e2e_s / expected_s
        return ttft_s * factor, token_s * factor if outcome.out_tok > 1 else None

    def _learn_cache(self, outcome: Outcome, label: str, seen_tok: int) -> None:
        if not outcome.in_tok:
            return
        known = min(seen_tok, outcome.in_tok)
        if known > 0.2 * outcome.in_tok:
            share = min(outcome.cached_tok / known, 1.0)
            self._warm.add(((), (label,)), share, self.tick)
        elif not known:
            share = outcome.cached_tok / outcome.in_tok
            self._cold.add(_caches(label, outcome.task), share, self.tick)

    def _learn_prices(self, outcome: Outcome, label: str) -> None:
        fresh = outcome.in_tok - outcome.cached_tok
        for name, nusd, tokens in (
            ("fresh", outcome.fresh_nusd, fresh),
            ("cached", outcome.cached_nusd, outcome.cached_tok),
            ("out", outcome.out_nusd, outcome.out_tok),
        ):
            if nusd is not None:
                self._price.add((label, name), nusd, tokens)
        if outcome.out_nusd is not None:
            key = (label, "out", outcome.task.kind)
            self._price.add(key, outcome.out_nusd, outcome.out_tok)


def _under(label: str, task: TaskClass) -> Chain:
    """The backend's own chain: what it does in general, for the kind, the client, the schema."""
    return tuple((label, *key) for key in task.chain())


def _caches(label: str, task: TaskClass) -> Chain:
    """How much of a prompt is found again is more the client's doing than the backend's."""
    return ((), (label,), (label, task.client))
