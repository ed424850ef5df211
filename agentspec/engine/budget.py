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
from operator import mul

from .cost import CostCurve
from .draft.base import FORCED, Proposal
from .ranking import Offered, Ranking, ranking

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
"""One token of a dense draft: minus its rank, its place, bid, gain and own seconds; sorted, they
are in their order."""


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
    offers = [_offered(bid) for bid in bids]
    most = sum(
        max(len(offer.gains), len(bid.gain)) for offer, bid in zip(offers, bids, strict=True)
    )
    if most == 0:
        return [0] * len(bids)
    pass_s = [base(base_rows + rows) for rows in range(most + 1)]
    tokens = sum(bid.weight for bid in bids)
    plain = tokens / (pass_s[0] + other_s)
    taken, value = _search(ranking(offers, pass_s), tokens, plain, other_s)
    if taken is None or value < plain * (1.0 + margin):
        taken = [0] * len(bids)
    widths = [0 if bid.dense else width for bid, width in zip(bids, taken, strict=True)]
    candidates = _dense_candidates(bids, value)
    if candidates:
        spent_s, stale = other_s, sum(taken) - sum(widths)
        for offer, width in zip(offers, widths, strict=True):
            tokens += sum(offer.gains[:width])
            spent_s += sum(offer.costs[:width])
        _admit_dense(bids, candidates, widths, stale, tokens, pass_s, spent_s)
    return widths


def _admit_dense(
    bids: Sequence[Bid],
    candidates: Sequence[_Candidate],
    widths: list[int],
    stale: int,
    tokens: float,
    pass_s: Sequence[float],
    spent_s: float,
) -> None:
    """Widen the widths of dense bids: ``stale`` tokens of form B, and form A's until one does not
    pay. tokens, spent_s: expected, and the seconds beside the pass, as the widths stand."""
    rows = sum(widths)
    for _, _, number, gain, own_s in candidates:
        if bids[number].expected is not None:
            if stale == 0:
                continue
            stale -= 1
        else:
            before = tokens / (pass_s[rows] + spent_s)
            rows, tokens, spent_s = rows + 1, tokens + gain, spent_s + own_s
            if tokens / (pass_s[rows] + spent_s) <= before:
                break
        widths[number] += 1


def _search(
    ranks: Ranking, start: float, price: float, other_s: float
) -> tuple[list[int] | None, float]:
    """How many tokens of each bid are best, where survivals may be looked at freely, and their
    tokens a second; None: none.

    start: tokens that come without drafts; price: so many a second. Maximising a quotient by
    Dinkelbach's method (1967): for a price of a second, tokens are ranked by what is left of their
    survival after their own cost, and the best prefix gives a better price, until none does.
    """
    best = None
    for _ in range(_ROUNDS):
        speed, found = ranks.best(price, start, other_s)
        if found is None:
            break
        settled = speed < price * _SETTLED
        best, price = found, speed
        if settled:
            break
    return None if best is None else best(), price


def _offered(bid: Bid) -> Offered:
    """One-hot tokens, or the places of dense ones as earlier drafts had them."""
    gains = (bid.expected or ()) if bid.dense else bid.gain
    costs = _mean_costs(bid, len(gains)) if bid.dense else _costs(bid, len(gains))
    if bid.weight == 1.0:
        return Offered(gains, costs)
    return Offered([bid.weight * gain for gain in gains], costs)


def _dense_candidates(bids: Sequence[Bid], price: float) -> list[_Candidate]:
    """Every token of the dense drafts by its current survival, in order of admission."""
    found: list[_Candidate] = []
    for number, bid in enumerate(bids):
        if not bid.dense:
            continue
        (cost,) = _mean_costs(bid, 1)
        for place, survival in enumerate(bid.gain):
            gain = bid.weight * survival
            rank = gain - price * cost
            if bid.expected is None or rank > 0.0:
                found.append((-rank, place, number, gain, cost))
    return sorted(found)


def _costs(bid: Bid, count: int) -> Sequence[float]:
    known = bid.own_s
    if len(known) >= count:
        return known[:count]
    return [*known, *[known[-1]] * (count - len(known))]


def _mean_costs(bid: Bid, count: int) -> list[float]:
    """One cost for all rows: which of them are taken must not hang on where a draft ends."""
    mean = sum(bid.own_s) / len(bid.own_s)
    return [mean] * count


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
