"""How many drafted tokens each sequence verifies in this step: one budget over all draft sources.

Expected tokens a second decide: (sequences + sum of survivals) / seconds, where the survival of a
drafted token is the product of the confidences up to it (DSpark paper, Algorithm 1), and a token
costs its row in the pass, the attention of that row to its own sequence's context, and the python
around it. Tokens of a tree compete the same way, each by the survival of its path.

Why a cut does not bias sampling: it is safe where "token k is verified" does not depend on what
token k or a later one turned out to be (non-anticipation: DSpark paper, App. A). A one-hot draft is
a function of tokens already committed: nothing about it is random any more, and the best widths
are searched freely. A dense one was sampled, and the confidence of its token k + 1 depends on token
k: a free search would keep those tokens that promise a confident continuation. Two forms are safe:

A  early stop: dense tokens come after all one-hot ones, by falling survival, and the walk ends at
   the first that does not pay. It misses what lies behind a step of the cost curve.
B  older confidences: how many dense tokens there are in all is searched freely with the survivals
   that earlier steps had (``Bid.expected``), then the current ones decide which, best first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from .cost import CostCurve
from .draft.base import FORCED, Proposal

_ROUNDS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Bid:
    """What one sequence that samples offers to verify.

    gain: of each drafted token, the tokens that verifying it is expected to bring (``gains``); of a
    dense draft its survival. dense: its tokens were sampled. expected: of a dense draft, the gains
    that earlier drafts had, as many as were asked for; None: form A.
    own_s: seconds that each further row costs beside its place in the pass, the last value for all
    that follow; a dense draft pays their mean. weight: of its tokens against other sequences'.
    """

    gain: Sequence[float] = ()
    dense: bool = False
    expected: Sequence[float] | None = None
    own_s: Sequence[float] = (0.0,)
    weight: float = 1.0


class _Candidate(NamedTuple):
    """One drafted token. The field order is the order of admission: the rank never falls along a
    bid and ties go to the smaller position, so a prefix always comes before its rest."""

    minus_rank: float
    position: int
    bid: int
    gain: float
    own_s: float
    dense: bool


@dataclass(slots=True)
class _State:
    """What is taken so far: weighted tokens, rows, seconds beside the base cost of the rows."""

    tokens: float
    rows: int
    other_s: float

    def speed(self, base: Callable[[int], float]) -> float:
        return self.tokens / (base(self.rows) + self.other_s)

    def add(self, candidate: _Candidate) -> None:
        self.tokens += candidate.gain
        self.rows += 1
        self.other_s += candidate.own_s


def choose(
    bids: Sequence[Bid],
    base_rows: int,
    base: Callable[[int], float],
    other_s: float = 0.0,
    *,
    margin: float = 0.0,
) -> list[int]:
    """How many leading tokens of each bid to verify, 0..len.

    base_rows: rows that the pass computes anyway (one a sequence, prefill chunks). base: seconds of
    a pass over its rows, never falling. other_s: seconds that the step costs whatever is chosen;
    base(base_rows) + other_s is positive. margin: share by which drafts must promise to be faster
    than none, for what the estimates have wrong. The widths never promise fewer tokens a second
    than plain decoding (all widths 0), except form B's by what older confidences had wrong.
    """
    widths = [0] * len(bids)
    state = _State(sum(bid.weight for bid in bids), base_rows, other_s)
    plain = state.speed(base)
    taken, value = _search(bids, state, plain, base)
    if value < plain * (1.0 + margin):
        taken = []
    stale = sum(candidate.dense for candidate in taken)
    for candidate in taken:
        if not candidate.dense:
            widths[candidate.bid] += 1
            state.add(candidate)
    dense = _dense_candidates(bids, value)
    for candidate in dense:
        if bids[candidate.bid].expected is not None:
            if stale == 0:
                continue
            stale -= 1
        else:
            before = state.speed(base)
            state.add(candidate)
            if state.speed(base) <= before:
                break
        widths[candidate.bid] += 1
    return widths


def _search(
    bids: Sequence[Bid], start: _State, plain: float, base: Callable[[int], float]
) -> tuple[list[_Candidate], float]:
    """The best set of tokens whose survival may be looked at freely, and its tokens a second.

    Maximising a quotient by Dinkelbach's method (1967): for a price of a second, tokens are ranked
    by what is left of their survival after their own cost, and the best prefix gives a better
    price, until none does.
    """
    best: list[_Candidate] = []
    price = plain
    for _ in range(_ROUNDS):
        ranked = sorted(_open_candidates(bids, price))
        state = _State(start.tokens, start.rows, start.other_s)
        speed, count = price, 0
        for number, candidate in enumerate(ranked, start=1):
            state.add(candidate)
            now = state.speed(base)
            if now > speed:
                speed, count = now, number
        if count == 0:
            break
        best, price = ranked[:count], speed
    return best, price


def _open_candidates(bids: Sequence[Bid], price: float) -> list[_Candidate]:
    """One-hot tokens, and the places of dense ones as earlier drafts had them; those that are worth
    less than their own cost are left out."""
    found: list[_Candidate] = []
    for number, bid in enumerate(bids):
        offered = (bid.expected or ()) if bid.dense else bid.gain
        costs = _mean_costs(bid, len(offered)) if bid.dense else _costs(bid, len(offered))
        gains = [bid.weight * gain for gain in offered]
        nets = [gain - price * cost for gain, cost in zip(gains, costs, strict=True)]
        for position, rank in enumerate(_falling(nets)):
            if rank <= 0.0:
                break
            found.append(
                _Candidate(-rank, position, number, gains[position], costs[position], bid.dense)
            )
    return found


def _dense_candidates(bids: Sequence[Bid], price: float) -> list[_Candidate]:
    """Every token of the dense drafts by its current survival, in order of admission."""
    found: list[_Candidate] = []
    for number, bid in enumerate(bids):
        if not bid.dense:
            continue
        (cost,) = _mean_costs(bid, 1)
        for position, survival in enumerate(bid.gain):
            gain = bid.weight * survival
            rank = gain - price * cost
            if bid.expected is None or rank > 0.0:
                found.append(_Candidate(-rank, position, number, gain, cost, True))
    return sorted(found)


def _costs(bid: Bid, count: int) -> list[float]:
    known = list(bid.own_s[:count])
    return known + [bid.own_s[-1]] * (count - len(known))


def _mean_costs(bid: Bid, count: int) -> list[float]:
    """One cost for all rows: which of them are taken must not hang on where a draft ends."""
    mean = sum(bid.own_s) / len(bid.own_s)
    return [mean] * count


def _falling(nets: list[float]) -> list[float]:
    """Ranks that never rise, by joining a token to those before it where it is worth more than
    they are: a cheap row behind a dear one is reached through it (pool adjacent violators)."""
    blocks: list[tuple[float, int]] = []
    for net in nets:
        total, count = net, 1
        while blocks and blocks[-1][0] * count <= total * blocks[-1][1]:
            more, length = blocks.pop()
            total, count = total + more, count + length
        blocks.append((total, count))
    return [total / count for total, count in blocks for _ in range(count)]


def survivals(confidence: Sequence[float], above: Sequence[int] | None = None) -> list[float]:
    """Of each token: the product of the confidences up to it, of a tree along its path.

    above: which token each follows (``Proposal.above``); None: a chain. Never rises: corrected
    confidences may order a tree's tokens otherwise than it was drawn, and its first ones are taken.
    """
    found: list[float] = []
    for i, estimate in enumerate(confidence):
        before = i - 1 if above is None else above[i]
        found.append(estimate if before < 0 else found[before] * estimate)
    return list(accumulate(found, min))


def gains(
    sources: Sequence[str], survival: Sequence[float], above: Sequence[int] | None = None
) -> list[float]:
    """What each token of a one-hot draft brings, of which plain decoding would not get for nothing.

    The grammar's forced tokens cost no step in plain decoding either. But where a draft is cut
    before a forced span, the pass's own token behind it is lost, as it is forced: so a drafted
    token that a span follows brings its gain with the last token of the span.
    """
    before = range(-1, len(sources) - 1) if above is None else above
    held: list[float] = []
    for source, parent, alive in zip(sources, before, survival, strict=True):
        if source == FORCED:
            alive = held[parent] if parent >= 0 else 0.0
        held.append(alive)
    for source, parent in zip(sources, before, strict=True):
        if source == FORCED and parent >= 0:
            held[parent] = 0.0
    return held


def choose_widths(proposals: Sequence[Proposal], base_rows: int, curve: CostCurve) -> list[int]:
    """``choose`` for proposals as they are: form A, rows alone cost."""
    bids = []
    for proposal in proposals:
        dense, above = proposal.draft_probs is not None, proposal.parents
        alive = survivals(proposal.confidence, above)
        gain = alive if dense else gains(proposal.sources, alive, above)
        bids.append(Bid(gain=gain, dense=dense))
    return choose(bids, base_rows, curve.seconds)
