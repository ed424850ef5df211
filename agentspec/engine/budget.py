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
from operator import ge, mul
from typing import NamedTuple

from .cost import CostCurve
from .draft.base import FORCED, Proposal

_ROUNDS = 4
_SETTLED = 1.0005
"""A better price by less than this factor changes no ranks that matter."""


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


_Candidate = tuple[float, int, int, float, float]
"""One drafted token: minus its rank, position, bid, gain, own seconds. That order is the order of
admission: the rank never falls along a bid and ties go to the smaller position, so a prefix always
comes before its rest."""


class _Offered(NamedTuple):
    """Of one bid, what the search may look at freely, place by place; gains are weighted."""

    bid: int
    gains: list[float]
    costs: list[float]


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
    offers = [_offered(number, bid) for number, bid in enumerate(bids)]
    most = sum(max(len(offer.gains), len(bids[offer.bid].gain)) for offer in offers)
    if most == 0:
        return widths
    pass_s = [base(base_rows + rows) for rows in range(most + 1)]
    tokens = sum(bid.weight for bid in bids)
    plain = tokens / (pass_s[0] + other_s)
    taken, value = _search(offers, tokens, pass_s, other_s)
    if value < plain * (1.0 + margin):
        taken = []
    stale = rows = 0
    for _, _, number, gain, own_s in taken:
        if bids[number].dense:
            stale += 1
            continue
        widths[number] += 1
        rows, tokens, other_s = rows + 1, tokens + gain, other_s + own_s
    for _, _, number, gain, own_s in _dense_candidates(bids, value):
        if bids[number].expected is not None:
            if stale == 0:
                continue
            stale -= 1
        else:
            before = tokens / (pass_s[rows] + other_s)
            rows, tokens, other_s = rows + 1, tokens + gain, other_s + own_s
            if tokens / (pass_s[rows] + other_s) <= before:
                break
        widths[number] += 1
    return widths


def _search(
    offers: Sequence[_Offered], start: float, pass_s: Sequence[float], other_s: float
) -> tuple[list[_Candidate], float]:
    """The best set of tokens whose survival may be looked at freely, and its tokens a second.

    start: tokens that come without drafts. pass_s: seconds of the pass by drafted rows in it.
    Maximising a quotient by Dinkelbach's method (1967): for a price of a second, tokens are ranked
    by what is left of their survival after their own cost, and the best prefix gives a better
    price, until none does.
    """
    best: list[_Candidate] = []
    price = start / (pass_s[0] + other_s)
    for _ in range(_ROUNDS):
        ranked = _ranked(offers, price)
        tokens, spent_s, speed, count = start, other_s, price, 0
        for number, (_, _, _, gain, own_s) in enumerate(ranked, start=1):
            tokens += gain
            spent_s += own_s
            now = tokens / (pass_s[number] + spent_s)
            if now > speed:
                speed, count = now, number
        if count == 0:
            break
        settled = speed < price * _SETTLED
        best, price = ranked[:count], speed
        if settled:
            break
    return best, price


def _ranked(offers: Sequence[_Offered], price: float) -> list[_Candidate]:
    """In order of admission; those that are worth less than their own cost are left out."""
    found: list[_Candidate] = []
    for number, gains, costs in offers:
        ranks = [gain - price * cost for gain, cost in zip(gains, costs, strict=True)]
        if not all(map(ge, ranks, ranks[1:])):
            ranks = _falling(ranks)
        places = range(len(ranks))
        found += [
            (-rank, place, number, gain, cost)
            for rank, place, gain, cost in zip(ranks, places, gains, costs, strict=True)
            if rank > 0.0
        ]
    found.sort()
    return found


def _offered(number: int, bid: Bid) -> _Offered:
    """One-hot tokens, or the places of dense ones as earlier drafts had them."""
    gains = (bid.expected or ()) if bid.dense else bid.gain
    costs = _mean_costs(bid, len(gains)) if bid.dense else _costs(bid, len(gains))
    if bid.weight == 1.0:
        return _Offered(number, list(gains), costs)
    return _Offered(number, [bid.weight * gain for gain in gains], costs)


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
                found.append((-rank, position, number, gain, cost))
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
    if above is None:
        return list(accumulate(confidence, mul))
    found: list[float] = []
    for estimate, before in zip(confidence, above, strict=True):
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
    if FORCED not in sources:
        return list(survival)
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


def rows_paid(sources: Sequence[str], survival: Sequence[float]) -> list[float] | None:
    """Of each token, the rows that verifying it really costs; None: one each.

    Plain decoding computes a forced token's row too, once its span is reached: a row that stands is
    one less in a later pass.
    """
    if FORCED not in sources:
        return None
    pairs = zip(sources, survival, strict=True)
    return [1.0 - alive if source == FORCED else 1.0 for source, alive in pairs]


def choose_widths(proposals: Sequence[Proposal], base_rows: int, curve: CostCurve) -> list[int]:
    """``choose`` for proposals as they are: form A, rows alone cost."""
    bids = []
    for proposal in proposals:
        dense, above = proposal.draft_probs is not None, proposal.parents
        alive = survivals(proposal.confidence, above)
        gain = alive if dense else gains(proposal.sources, alive, above)
        bids.append(Bid(gain=gain, dense=dense))
    return choose(bids, base_rows, curve.seconds)
