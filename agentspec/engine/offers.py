"""What draft sources offered in a step, and whose it is."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import NamedTuple

from .draft.base import FORCED, Proposal


class Call(NamedTuple):
    """Of a source, for some slots; lengths: of the drafts that came, 0: nothing to offer."""

    source: str
    seconds: float
    lengths: Seq[int]


@dataclass(slots=True)
class Offer:
    """What was offered of one sequence in this step: the whole draft, and how much is verified.

    limit: tokens that the last source was asked for, what it stands behind included. drew: by
    source, tokens asked for from the beginning, and how many came. confidence: corrected. gain,
    paid: of each token, what verifying it is expected to bring, and the rows that it really costs
    (None: one each; see ``budget.gains``, ``budget.rows_paid``).
    """

    proposal: Proposal
    masked: bool
    tested: int = 0
    limit: int = 0
    drew: dict[str, tuple[int, int]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    confidence: Seq[float] = ()
    survival: Seq[float] = ()
    gain: Seq[float] = ()
    paid: Seq[float] | None = None


def gains_of(offer: Offer, source: str, gain: Seq[float]) -> Seq[float] | None:
    """Of the part that a source drafted from the beginning, of the gains of the whole; none of a
    draft that had nothing, or nothing legal. None: another source's draft was taken instead."""
    _, length = offer.drew[source]
    names = offer.proposal.sources
    if length == 0 or not names:
        return ()
    if source not in names:
        return None
    if names.count(source) == len(names):
        return gain
    return gain[: next((i for i, n in enumerate(names) if n not in (source, FORCED)), len(names))]


def drafter_of(proposal: Proposal) -> str:
    """Who drafted: the sources in their order, "+" between them."""
    return "+".join(dict.fromkeys(name for name in proposal.sources if name != FORCED)) or FORCED


def brought_by(proposal: Proposal, gain: Seq[float]) -> dict[str, tuple[float, int]]:
    """By source: tokens that its part is expected to bring, and rows of it; a forced span belongs
    to the source before it."""
    names = proposal.sources
    if names and names.count(names[0]) == len(names):
        return {names[0]: (sum(gain), len(gain))}
    found: dict[str, tuple[float, int]] = {}
    owner = FORCED
    for source, token in zip(proposal.sources, gain, strict=False):
        owner = owner if source == FORCED else source
        tokens, rows = found.get(owner, (0.0, 0))
        found[owner] = tokens + token, rows + 1
    return found
