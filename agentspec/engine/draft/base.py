"""The whole contract between drafters and the engine: ``Drafter``, ``Proposal``, ``Verdict``.

Legend: K drafted tokens, V vocabulary, N tapped features of one token.

A drafter is opened per sequence, asked for proposals, told what was committed, and closed. It
never touches logits, pages or the grammar: the engine filters its tokens through the grammar, cuts
them to the width that the cost curve allows, and verifies them.
"""

from __future__ import annotations

from collections.abc import Collection
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from agentspec.engine.sampling import Entropy

if TYPE_CHECKING:
    from torch import Tensor

    from agentspec.engine.constrain import Constraint
    from agentspec.engine.sampling import SamplingParams

FORCED = "forced"


@dataclass(frozen=True, slots=True)
class Proposal:
    """Draft tokens for the positions that follow a sequence's committed tokens.

    tokens: K ids in order. A token from source "forced" is part of the constraint (law 2): it is
        taken without a test and its preceding row needs no logits.
    sources: K names of the draft source of each token.
    confidence: K estimates of P(token k accepted | tokens before k accepted). The estimate for k
        may depend on tokens before k only, never on token k itself or later ones, unless the
        draft is one-hot (``draft_probs`` None): otherwise cutting by it would bias sampling
        (DSpark paper, App. A).
    draft_probs: [K, V] float32, the distribution each token was really drawn from, every mask and
        truncation included; None: each token was chosen deterministically (one-hot).
    """

    tokens: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()
    draft_probs: Tensor | None = None

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.sources) == len(self.confidence)

    def __len__(self) -> int:
        return len(self.tokens)

    def cut(self, length: int) -> Proposal:
        """The first ``length`` tokens of this proposal."""
        probs = None if self.draft_probs is None else self.draft_probs[:length]
        return Proposal(
            self.tokens[:length], self.sources[:length], self.confidence[:length], probs
        )


EMPTY = Proposal()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of verifying one proposal.

    accepted: how many leading tokens of the proposal stand (forced ones included).
    next_token: the token that the target chose after them: the residual's sample at a rejection,
        the bonus token when all were accepted. Always present; the engine drops it when an accepted
        token ends the sequence.
    """

    accepted: int
    next_token: int


@dataclass(slots=True)
class DraftView:
    """What a drafter may see of one sequence: the engine's, valid while the sequence is open.

    sequence_id: unique in the engine's life.
    cache_scope, session: the tenant and the conversation; text never crosses a scope.
    tokens: committed ids, prompt included; appended to by the engine only.
    prompt_length: how many of them are prompt.
    constraint: the sequence's live grammar session or None; a drafter may ``clone`` it, or move it
        within a ``Walk``, which takes it back.
    stop_ids: tokens that end the text.
    entropy: the sequence's randomness; a drafter that draws takes numbers for ``Purpose.DRAFT``,
        and with a seed the noise by which the target itself chooses.
    pages, page_epochs: the page table (position p lies in pages[p // page_tokens]) and, by number
        of a page, how often it was given out: a drafter that keeps K/V of its own beside the
        target's knows by it whether a page still holds the text that it saw.
    """

    sequence_id: int
    cache_scope: str
    session: str | None
    tokens: list[int]
    prompt_length: int
    sampling: SamplingParams
    constraint: Constraint | None = None
    stop_ids: Collection[int] = ()
    entropy: Entropy = field(default_factory=lambda: Entropy.of(None))
    pages: Seq[int] = field(default=(), repr=False)
    page_epochs: Seq[int] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Observed:
    """What one pass of the target computed of one sequence, rejected drafts left out.

    start: position of the first row. features: [T, N], the outputs of the drafter's ``taps`` side
    by side in their order, of the committed positions start .. start + T - 1; float32, or the
    model's dtype. It is overwritten by the next pass.
    """

    view: DraftView
    start: int
    features: Tensor

    @property
    def end(self) -> int:
        """The position behind the last row."""
        return self.start + self.features.shape[0]


class Drafter(Protocol):
    """A draft source. One instance serves all sequences of an engine, called from one thread."""

    name: str
    taps: tuple[int, ...]
    """Decoder layers (from 0) whose outputs ``observe`` is told; () for model-free drafters."""

    def open(self, view: DraftView) -> None:
        """A sequence starts (or resumes after preemption, with more tokens)."""
        ...

    def propose(self, views: Seq[DraftView], limits: Seq[int]) -> list[Proposal]:
        """One proposal a view, each at most ``limits[i]`` tokens; may be empty.

        Changes nothing that another call could observe: proposals may be thrown away.
        """
        ...

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        """``view.tokens`` grew by ``committed`` ids, of which ``accepted`` led ``proposal``.

        ``proposal`` is what was really verified (after grammar filter and cut).
        """
        ...

    def close(self, view: DraftView) -> None:
        """The sequence ended, was aborted or was preempted; frees what is held for it."""
        ...


class TappedDrafter(Drafter, Protocol):
    """A drafter with ``taps``."""

    def observe(self, observed: Seq[Observed]) -> None:
        """After a pass, and before ``commit``: the features of what is committed of its rows.

        Rows come in order of position, each at most once while a sequence is open. The first ones
        may be missing (a prefix hit), others too (a window without speculation), and the last
        committed token's always are: it was no row of a pass yet.
        """
        ...
