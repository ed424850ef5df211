"""One lossless acceptance rule for every draft source and temperature.

Legend: K drafted tokens, R rows of logits, V vocabulary.

A drafted token x is accepted with probability min(1, target_probs[x] / draft_probs[x]); at the
first rejection the residual max(target_probs - draft_probs, 0), normalised, is sampled; after K
acceptances the target itself (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318). A
one-hot draft (``draft_probs`` None) is the same formula with all draft mass on x. Greedy is
temperature 0 of it: the target is one-hot, so a token stands where it is the masked argmax, and the
residual is that argmax. With a seed the target's token is the argmax of log target_probs +
noise(seed, position), and a drafted token stands where it is that very token: drafts cannot change
the text (arXiv 2408.07978).

Of a tree the path is followed that the same rule picks. A greedy, seeded or one-hot choice is the
target's own: the token that follows stands if it is the one chosen. Dense tokens after the same
one are tried in turn, each against what the rejections before it left of the target (recursive
rejection sampling: Miao et al., arXiv 2305.09781, section 4.3; Chen et al., arXiv 2402.12374): each
was drawn from its own ``draft_probs`` given the ones before it, so every trial is the rule above.

An illegal drafted token has target probability 0: it is rejected and the residual sampled. Dropping
it and sampling from the target instead would be biased for dense drafts (total variation 0.13
in an exact enumeration of a toy case), since a residual and a target differ. So a sampled chain is
cut with the token behind the cut as its ``tail``: the row before it tests that token, which needs
no row of its own, and a cut may then depend on the token itself, if on no later one (exact in the
same enumeration, where a look two tokens ahead stays biased).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from .draft.base import FORCED, DraftView, Proposal, Verdict
from .sampling import Entropy, History, argmax, best_token, check_finite, target_probs
from .walk import Walk

if TYPE_CHECKING:
    from torch import Tensor

LEAST_RESIDUAL = 1e-12
"""Below this mass a residual is rounding error: the rejection itself had no more probability."""


def accept_probability(target: Tensor, draft: Tensor | None, token: int) -> float:
    """P(the drafted ``token`` stands). target, draft: [V] probabilities; draft None: one-hot.

    Where the draft claims probability 0 for the token it drew (underflow), the quotient's limit is
    taken: 1 if the target allows the token, else 0.
    """
    wanted = float(target[token])
    offered = 1.0 if draft is None else float(draft[token])
    if wanted >= offered:
        return 1.0 if wanted > 0.0 else 0.0
    return wanted / offered


def residual(target: Tensor, draft: Tensor | None, token: int) -> Tensor:
    """The distribution to sample after ``token`` was rejected: new [V], dtype of ``target`` [V].

    Falls back to ``target`` where the remaining mass is at most ``LEAST_RESIDUAL``: a rejection is
    then a rounding accident, and the target never holds a forbidden token.
    """
    if draft is None:
        rest = target.clone()
        rest[token] = 0.0
    else:
        rest = (target - draft.to(target)).clamp_min_(0.0)
    mass = rest.sum()
    return rest / mass if float(mass) > LEAST_RESIDUAL else target


def verify(
    view: DraftView,
    proposal: Proposal,
    logits: Tensor,
    rows: Sequence[int | None],
    entropy: Entropy,
    stop_ids: Collection[int] = (),
) -> Verdict:
    """How much of ``proposal`` stands, and the target's token after it. Changes nothing.

    proposal: as ``constrain_draft`` gave it, cut anywhere. logits: [R, V] float32 or float64, not
    modified. rows[0]: the row of ``logits`` after the committed tokens; rows[1 + i]: after token i
    of the proposal. None where what follows is a forced token of the proposal (it is taken without
    a test); where the grammar forces what follows the last one, that token is the next one, and its
    row is not read either way. Rows after the first rejection are not read. ``stop_ids`` end the
    text: after an accepted one nothing is sampled and ``next_token`` repeats it.
    Raises ``NoTokenAllowed`` where a row allows no token.
    """
    assert len(rows) == len(proposal) + 1
    with Walk(view.constraint, stop_ids) as walk:
        target = _Target(view, logits, rows, entropy, walk)
        if proposal.parents is not None:
            return _descend(proposal, target, walk)
        for i, token in enumerate(proposal.tokens):
            if proposal.sources[i] != FORCED:
                draft = None if proposal.draft_probs is None else proposal.draft_probs[i]
                instead = target.test(i, token, draft)
                if instead is not None:
                    return Verdict(i, instead)
            if not walk.advance(token):
                return Verdict(i + 1, token)
            target.push(token)
        return Verdict(len(proposal), _behind(proposal, target, walk))


def _behind(proposal: Proposal, target: _Target, walk: Walk) -> int:
    """The token after a chain that stands whole: forced, else the target's by its last row, which
    tests the tail where there is one."""
    forced = walk.forced(1)
    if forced:
        return forced[0]
    last = len(proposal)
    if proposal.tail is None:
        return target.choose(last)
    token, draft = proposal.tail
    instead = target.test(last, token, draft)
    return token if instead is None else instead


def _descend(proposal: Proposal, target: _Target, walk: Walk) -> Verdict:
    """The path of a tree that stands, and the target's token after it."""
    path: list[int] = []
    while True:
        node = path[-1] if path else -1
        below = proposal.below(node)
        if not below:
            forced = walk.forced(1)
            next_token = forced[0] if forced else target.choose(node + 1)
            return Verdict(len(path), next_token, tuple(path))
        found, instead = below[0], 0
        if proposal.sources[found] != FORCED:
            found, instead = target.pick(node + 1, proposal, below)
        if found is None:
            return Verdict(len(path), instead, tuple(path))
        path.append(found)
        token = proposal.tokens[found]
        if not walk.advance(token):
            return Verdict(len(path), token, tuple(path))
        target.push(token)


class _Target:
    """The target's rows, each computed when it is reached, with the drafts before it as history."""

    def __init__(
        self,
        view: DraftView,
        logits: Tensor,
        rows: Sequence[int | None],
        entropy: Entropy,
        walk: Walk,
    ):
        self._params = view.sampling
        self._position = len(view.tokens)
        self._logits, self._rows = logits, rows
        self._entropy, self._walk = entropy, walk
        self._history = None
        if self._params.penalised or self._params.logit_bias:
            self._history = History(self._params, view.tokens, view.prompt_length, logits.shape[1])

    def push(self, token: int) -> None:
        """Go on to the position after ``token``."""
        self._position += 1
        if self._history is not None:
            self._history.push(token)

    def test(self, i: int, token: int, draft: Tensor | None) -> int | None:
        """None: drafted ``token`` i stands. Else the token to be taken instead of it."""
        if self._params.greedy or self._entropy.seeded:
            chosen = self.choose(i)
            return None if chosen == token else chosen
        target = self._probs(i)
        if self._entropy.coin(self._position, accept_probability(target, draft, token)):
            return None
        return self._entropy.choose(self._position, residual(target, draft, token))

    def pick(self, i: int, proposal: Proposal, nodes: Sequence[int]) -> tuple[int | None, int]:
        """Which of ``nodes``, the tokens of a tree after row i, stands; else None, and the token
        to be taken instead of them."""
        dense = proposal.draft_probs
        if dense is None or self._params.greedy or self._entropy.seeded:
            chosen = self.choose(i)
            return next((n for n in nodes if proposal.tokens[n] == chosen), None), chosen
        target = self._probs(i)
        for attempt, node in enumerate(nodes):
            token = proposal.tokens[node]
            probability = accept_probability(target, dense[node], token)
            if self._entropy.coin(self._position, probability, attempt):
                return node, token
            target = residual(target, dense[node], token)
        return None, self._entropy.choose(self._position, target)

    def choose(self, i: int) -> int:
        """The target's own token at row i, drafts apart."""
        if self._params.greedy:
            return self._greedy(self._scores(i))
        return self._entropy.choose(self._position, self._probs(i))

    def _greedy(self, scores: Tensor) -> int:
        """Masked argmax of [V]. A mask is built only where the raw argmax is forbidden."""
        best = argmax(scores)
        if self._walk.allows(best):
            check_finite(float(scores[best]))
            return best
        return best_token(scores, self._walk.allowed(scores.numel()))

    def _probs(self, i: int) -> Tensor:
        """[V], dtype of the logits."""
        scores = self._scores(i)
        return target_probs(scores, self._params, self._walk.allowed(scores.numel()))

    def _scores(self, i: int) -> Tensor:
        """[V]: raw logits with bias and penalties."""
        row = self._rows[i]
        assert row is not None, "a token that is not forced needs its row of logits"
        scores = self._logits[row]
        return scores if self._history is None else self._history.adjust(scores)
