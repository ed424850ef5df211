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
        truncation included; None: each token was chosen deterministically (one-hot). Of tokens
        that follow the same one, each was drawn given those before it: without replacement its
        distribution is 0 at theirs.
    parents: of a tree, for each token which of the K it follows, -1: the committed ones; None: a
        chain. Tokens then stand by falling survival, so that its first ones are a tree as well,
        and the best of their number; of a dense one also those that follow the same token stand
        in the order in which they were drawn.
    tail: of a sampled chain that was cut, the token that stood behind the cut, and the [V] it was
        drawn from. The row before the cut tests it, at no cost: so whether it was cut there may
        look at the token itself (that it is illegal, say) without bias.
    """

    tokens: tuple[int, ...] = ()
    sources: tuple[str, ...] = ()
    confidence: tuple[float, ...] = ()
    draft_probs: Tensor | None = None
    parents: tuple[int, ...] | None = None
    tail: tuple[int, Tensor] | None = None

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.sources) == len(self.confidence)
        if self.parents is not None:
            assert len(self.parents) == len(self.tokens)
            assert all(-1 <= parent < i for i, parent in enumerate(self.parents))
            survival = self.survival()
            assert all(a >= b for a, b in zip(survival, survival[1:], strict=False))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def above(self) -> tuple[int, ...]:
        """For each token the one that it follows, -1: the committed ones."""
        return tuple(range(-1, len(self) - 1)) if self.parents is None else self.parents

    def survival(self) -> list[float]:
        """For each token the product of the confidences along its path; never rises."""
        found: list[float] = []
        for above, estimate in zip(self.above, self.confidence, strict=True):
            found.append(estimate if above < 0 else found[above] * estimate)
        return found

    def below(self, node: int) -> list[int]:
        """The tokens that follow token ``node`` (-1: the committed ones)."""
        if self.parents is None:
            return [node + 1] if node + 1 < len(self) else []
        return [i for i, parent in enumerate(self.parents) if parent == node]

    def follow(self, tokens: Seq[int]) -> list[int]:
        """The path that spells as much of ``tokens`` as one can."""
        path: list[int] = []
        for token in tokens:
            at = path[-1] if path else -1
            found = next((i for i in self.below(at) if self.tokens[i] == token), None)
            if found is None:
                break
            path.append(found)
        return path

    def cut(self, length: int) -> Proposal:
        """The first ``length`` tokens; of a sampled chain the next one becomes the tail."""
        parents = None if self.parents is None else self.parents[:length]
        return Proposal(
            self.tokens[:length],
            self.sources[:length],
            self.confidence[:length],
            None if self.draft_probs is None else self.draft_probs[:length],
            None if parents == tuple(range(-1, length - 1)) else parents,
            self.tail_at(length),
        )

    def tail_at(self, length: int) -> tuple[int, Tensor] | None:
        """What stands behind the first ``length`` tokens of a sampled chain, to be tested there."""
        if self.draft_probs is None or self.parents is not None:
            return None
        if length >= len(self):
            return self.tail
        forced = self.sources[length] == FORCED
        return None if forced else (self.tokens[length], self.draft_probs[length])


EMPTY = Proposal()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of verifying one proposal.

    accepted: how many leading tokens of the proposal stand (forced ones included); of a tree, how
        many tokens of the path that stands.
    next_token: the token that the target chose after them: the residual's sample at a rejection,
        the bonus token when all were accepted. Always present; the engine drops it when an accepted
        token ends the sequence.
    """

    accepted: int
    next_token: int
    path: tuple[int, ...] = ()
    """Of a tree: which tokens stand, in order."""

    @property
    def standing(self) -> Seq[int]:
        """Which tokens of the proposal stand, in order."""
        return self.path or range(self.accepted)


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

        ``proposal`` is what was really verified (after grammar filter and cut); of a tree the
        accepted ids are those of a path (``Proposal.follow``).
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
