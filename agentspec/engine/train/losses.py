"""The loss over the vocabulary, in chunks of rows, with its gradient taken in the same pass.

Legend: R supervised rows, U target rows, E hidden size, r Markov rank, V vocabulary, C a chunk.

Of a row with draft probabilities d, target probabilities t (both softmax at T = 1) and the true
token y: ``ce`` = -log d[y]; ``l1`` = sum |d - t| (twice the total variation); ``soft`` = the cross
entropy -sum t log d (KL plus a constant). Where a draft proposes a shortlist only, t keeps the
target's true chances, whose sum is then below 1, and a token outside has no ``ce``. Loss = sum over
rows of the row's three coefficients times these. It is linear, so the coefficients (position
weights over the global token mean: DeepSpec's loss.py, DSpark paper eq. 9-12) are known before any
row is computed, and no row's logits outlive its chunk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Coefficients:
    """What each row's terms count, [R] float each. All zero of a kind: it isn't computed."""

    ce: Tensor
    l1: Tensor
    soft: Tensor

    @property
    def need_target(self) -> bool:
        return bool((self.l1 != 0).any() or (self.soft != 0).any())


@dataclass(frozen=True, slots=True)
class Shortlist:
    """A draft that proposes U of the N tokens: its V is U, and the target's mass elsewhere is lost.

    head [N, E]: the target's whole lm_head. ids [U] int64: the token of each row of logits.
    row [N] int64: the row of each token, -1 where it has none.
    """

    head: Tensor
    ids: Tensor
    row: Tensor


@dataclass(frozen=True, slots=True)
class Head:
    """What makes logits: lm_head [V, E], frozen, of the dtype that the products run in.

    chunk: rows at once; memory is about 6 * chunk * V * 4 bytes. short: its rows are some only.
    """

    weight: Tensor
    chunk: int = 128
    short: Shortlist | None = None

    @classmethod
    def of(cls, whole: Tensor, chunk: int, ids: Tensor | None) -> Head:
        """whole [N, E]; ids [U] int64: the tokens that a draft proposes, None: all."""
        if ids is None:
            return cls(whole, chunk)
        row = torch.full((len(whole),), -1, device=whole.device)
        row[ids] = torch.arange(len(ids), device=whole.device)
        return cls(whole[ids].contiguous(), chunk, Shortlist(whole, ids, row))

    def rows_of(self, tokens: Tensor) -> Tensor:
        """The row of each token, -1 where it can't be proposed."""
        return tokens if self.short is None else self.short.row[tokens]

    def target_probs(self, hidden: Tensor) -> Tensor:
        """The target's chances [C, V] of what can be proposed, from its last hidden [C, E]."""
        weight = self.weight if self.short is None else self.short.head
        wide = torch.promote_types(weight.dtype, torch.float32)
        probs = (hidden.to(weight.dtype) @ weight.T).to(wide).softmax(-1)
        return probs if self.short is None else probs[:, self.short.ids]


@dataclass(frozen=True, slots=True)
class HeadLoss:
    """loss: scalar with gradient. Of each row, [R] without: overlap: 1 - l1 / 2, the chance that a
    drawn token is accepted; hit: whether the best token is y."""

    loss: Tensor
    overlap: Tensor
    hit: Tensor


def head_loss(
    head: Head,
    hidden: Tensor,
    markov: Tensor | None,
    w2: Tensor | None,
    targets: Tensor,
    target_rows: Tensor,
    labels: Tensor,
    coefficients: Coefficients,
    *,
    measure: bool = True,
) -> HeadLoss:
    """hidden [R, E], markov [R, r] and w2 [V, r] or None, targets [U, E] last hidden states of the
    target, target_rows [R] into them, labels [R].

    measure: overlap is wanted even where no coefficient needs the target (else it is zeros).
    """
    c = coefficients
    wanted = measure or c.need_target
    # Rows with the same target lie side by side, so that a chunk computes each only once.
    order = torch.argsort(target_rows, stable=True)
    inverse = torch.argsort(order)
    labels = head.rows_of(labels)
    packed = torch.stack((c.ce * (labels >= 0), c.l1, c.soft), 1)[order]
    loss, overlap, hit = _HeadLoss.apply(  # pyright: ignore[reportGeneralTypeIssues]
        hidden[order],
        None if markov is None else markov[order],
        w2,
        head,
        targets if wanted else None,
        target_rows[order],
        labels[order],
        packed,
    )
    return HeadLoss(loss, overlap[inverse], hit[inverse])


class _HeadLoss(torch.autograd.Function):
    """Forward computes the gradients of hidden, markov and w2 as well; backward scales them."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        markov: Tensor | None,
        w2: Tensor | None,
        head: Head,
        targets: Tensor | None,
        target_rows: Tensor,
        labels: Tensor,
        packed: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        rows, kind = len(hidden), head.weight.dtype
        wide = torch.promote_types(kind, torch.float32)
        grads = _Gradients.like(hidden, markov, w2, wide) if ctx.needs_input_grad[0] else None
        low = None if w2 is None else w2.to(kind)
        loss = torch.zeros((), dtype=wide, device=hidden.device)
        overlap, hit = hidden.new_zeros(rows, dtype=wide), hidden.new_zeros(rows, dtype=torch.bool)
        for start in range(0, rows, head.chunk):
            part = slice(start, start + head.chunk)
            h = hidden[part].to(kind)
            logits = h @ head.weight.T
            m = None if markov is None else markov[part].to(kind)
            if m is not None and low is not None:
                logits += m @ low.T
            target = None
            if targets is not None:
                target = _target_probs(head, targets, target_rows[part])
            terms = _Terms.of(logits.to(wide), target, labels[part], packed[part].to(wide))
            loss += terms.loss
            overlap[part], hit[part] = terms.overlap, terms.hit
            if grads is not None:
                grads.add(part, terms.gradient().to(kind), head.weight, m, low)
        ctx.grads = grads
        ctx.mark_non_differentiable(overlap, hit)
        return loss, overlap, hit

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        grads: _Gradients = ctx.grads
        scaled = [None if g is None else g * outer[0] for g in grads.all]
        return (*scaled, None, None, None, None, None)


def _target_probs(head: Head, targets: Tensor, rows: Tensor) -> Tensor:
    """The target's chances at ``rows`` [C] of targets [U, E] -> [C, V]."""
    unique, where = torch.unique_consecutive(rows, return_inverse=True)
    probs = head.target_probs(targets[unique])
    return probs if len(unique) == len(rows) else probs[where]


@dataclass(slots=True)
class _Terms:
    """One chunk: its loss, and what the gradient of the logits [C, V] is made of. mass [C]: of the
    target's chances, 1 unless the draft has a shortlist."""

    loss: Tensor
    overlap: Tensor
    hit: Tensor
    probs: Tensor
    target: Tensor | None
    mass: Tensor | None
    labels: Tensor
    packed: Tensor
    difference: Tensor | None

    @classmethod
    def of(cls, logits: Tensor, target: Tensor | None, labels: Tensor, packed: Tensor) -> _Terms:
        """logits, target [C, V]; labels [C]; packed [C, 3]: coefficients of ce, l1 and soft."""
        hit = logits.argmax(-1) == labels
        labels = labels.clamp(min=0)
        total = logits.logsumexp(-1, keepdim=True)
        mass = None if target is None else target.sum(-1)
        loss = (packed[:, 0] * (total - logits.gather(1, labels[:, None]))[:, 0]).sum()
        overlap, difference = logits.new_zeros(len(labels)), None
        if target is not None and mass is not None:
            if bool((packed[:, 2] != 0).any()):
                soft = mass * total[:, 0] - (target * logits).sum(-1)
                loss = loss + (packed[:, 2] * soft).sum()
            probs = logits.sub_(total).exp_()
            difference = probs - target
            l1 = difference.abs().sum(-1) + (1 - mass)
            overlap = 1 - l1 / 2
            loss = loss + (packed[:, 1] * l1).sum()
        else:
            probs = logits.sub_(total).exp_()
        return cls(loss, overlap, hit, probs, target, mass, labels, packed, difference)

    def gradient(self) -> Tensor:
        """d loss / d logits [C, V]; uses up what it is made of."""
        ce, l1, soft = self.packed.unbind(1)
        probs, difference = self.probs, self.difference
        if difference is None or self.target is None or self.mass is None:
            grad = probs.mul_(ce[:, None])
        else:
            # d l1 / d z_j = d_j (s_j - sum_i d_i s_i), s the sign of d - t.
            sign = difference.sign_()
            mean = (probs * sign).sum(-1, keepdim=True)
            grad = (
                sign.sub_(mean).mul_(l1[:, None]).add_((ce + soft * self.mass)[:, None]).mul_(probs)
            )
            if bool((soft != 0).any()):
                grad.sub_(self.target * soft[:, None])
        return grad.scatter_add_(1, self.labels[:, None], -ce[:, None])


@dataclass(slots=True)
class _Gradients:
    """hidden [R, E], markov [R, r], w2 [V, r], wide floats."""

    hidden: Tensor
    markov: Tensor | None
    w2: Tensor | None

    @classmethod
    def like(
        cls, hidden: Tensor, markov: Tensor | None, w2: Tensor | None, wide: torch.dtype
    ) -> _Gradients:
        made = [
            None if t is None else torch.zeros_like(t, dtype=wide) for t in (hidden, markov, w2)
        ]
        assert made[0] is not None
        return cls(made[0], made[1], made[2])

    @property
    def all(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return self.hidden, self.markov, self.w2

    def add(
        self, part: slice, grad: Tensor, weight: Tensor, m: Tensor | None, low: Tensor | None
    ) -> None:
        """grad [C, V] of the logits of rows ``part``."""
        self.hidden[part] = grad @ weight
        if m is not None and low is not None:
            assert self.markov is not None and self.w2 is not None
            self.markov[part] = grad @ low
            self.w2 += grad.T @ m
