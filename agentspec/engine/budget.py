"""How many drafted tokens each sequence verifies in this step: one budget over all draft sources.

Expected tokens a second decide: (sequences + sum of survivals) / seconds(rows), where the survival
of a drafted token is the product of the confidences up to it (DSpark paper, Algorithm 1).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from .cost import CostCurve
from .draft.base import Proposal


class _Candidate(NamedTuple):
    """One drafted token. The field order is the order of admission: survival never rises along a
    proposal and ties go to the smaller position, so a prefix always comes before its rest."""

    minus_survival: float
    position: int
    sequence: int


def choose_widths(proposals: Sequence[Proposal], base_rows: int, curve: CostCurve) -> list[int]:
    """How many leading tokens of each proposal to verify, 0..len.

    base_rows: rows that the pass computes anyway (one a sequence, prefill chunks). Each drafted
    token adds a row, also a forced one, whose confidence is 1.0: its survival is that of the token
    before. The widths never promise fewer tokens a second than plain decoding (all widths 0).

    Why this does not bias sampling: a cut is safe where "token k is verified" does not depend on
    what token k or a later one turned out to be (non-anticipation: DSpark paper, App. A). A one-hot
    proposal is a function of tokens already committed, so nothing about it is random any more, and
    the best widths are searched freely. A dense one was sampled, and the confidence of its token
    k + 1 depends on token k: a free search would keep those tokens that promise a confident
    continuation. So dense tokens come after all one-hot ones, by falling survival, and the walk
    ends at the first that does not pay: whether a token is admitted depends on confidences up to
    its own, and these look at earlier tokens only (``Proposal.confidence``).
    """
    widths = [0] * len(proposals)
    rows, tokens = base_rows, float(len(proposals))
    best = _Best(tokens / curve.seconds(rows), 0, tokens)
    candidates = _candidates(proposals, dense=False)
    for count, candidate in enumerate(candidates, start=1):
        tokens -= candidate.minus_survival
        speed = tokens / curve.seconds(rows + count)
        if speed > best.speed:
            best = _Best(speed, count, tokens)
    for candidate in candidates[: best.taken]:
        widths[candidate.sequence] += 1

    rows, tokens = rows + best.taken, best.tokens
    for candidate in _candidates(proposals, dense=True):
        rows += 1
        tokens -= candidate.minus_survival
        speed = tokens / curve.seconds(rows)
        if speed <= best.speed:
            break
        best = _Best(speed, 0, tokens)
        widths[candidate.sequence] += 1
    return widths


class _Best(NamedTuple):
    """The best choice so far: expected tokens a second, how many candidates, expected tokens."""

    speed: float
    taken: int
    tokens: float


def _candidates(proposals: Sequence[Proposal], *, dense: bool) -> list[_Candidate]:
    """Every token of the dense (or of the one-hot) proposals, in order of admission."""
    return sorted(
        _Candidate(-survival, position, sequence)
        for sequence, proposal in enumerate(proposals)
        if (proposal.draft_probs is not None) == dense
        for position, survival in enumerate(accumulate(proposal.confidence, mul))
    )
