"""Verification where the logits are: all chains of a step in one ``accept``, all trees in another.

``verify.py`` is the rule, a sequence at a time on the host, which waits for the device at every
row. Here the host makes what the kernels need of each row before it waits at all: drafts, grammar
masks, the sequence's random numbers. Then two small tensors come back. The distributions are summed
in float64 and in another order than ``verify.py`` sums them: where two choices are equal up to
rounding the token may be another one of them.

Legend: R rows, V vocabulary, W mask words, K drafted tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from agentspec_kernels.accept import Chains, Trees, accept, accept_tree
from agentspec_kernels.gumbel.reference import key

from .draft.base import FORCED, Verdict
from .isolation import isolated
from .sampling import NoTokenAllowed, Purpose
from .walk import Walk

if TYPE_CHECKING:
    from torch import Tensor

    from .slot import Slot


def able(slot: Slot) -> bool:
    """Whether a slot's verification is one of these; penalties, biases, and forced tokens within a
    tree are left to ``verify.py``."""
    params, proposal = slot.sequence.view.sampling, slot.proposal
    plain = not params.penalised and not params.logit_bias
    return plain and (proposal.parents is None or FORCED not in proposal.sources)


def verify_all(slots: Seq[Slot], logits: Tensor, *, backend: str | None = None) -> None:
    """Set the verdict of each slot, all ``able``. logits [R, V] of the pass, not changed.

    A sequence of which a row allows no token, or whose constraint fails, ends with an error.
    """
    chains, certain, dense = (_Rows(logits) for _ in range(3))
    for slot in slots:
        proposal = slot.proposal
        rows = chains if proposal.parents is None else certain
        if proposal.parents is not None and proposal.draft_probs is not None:
            rows = dense
        with isolated(slot.sequence):
            rows.add(slot)
    if chains.asked:
        found = accept(chains.chains(), backend=backend)
        outcomes = torch.stack((found.count, found.token), 1).tolist()
        for asked, (count, token) in zip(chains.asked, outcomes, strict=True):
            with isolated(asked.slot.sequence):
                asked.slot.verdict = _of_chain(asked, count, token)
    for trees in (certain, dense):
        if trees.asked:
            path = accept_tree(Trees(rows=trees.chains(), parents=trees.parents()), backend=backend)
            stands, tokens = path.stands.tolist(), path.token.tolist()
            for asked, token in zip(trees.asked, tokens, strict=True):
                with isolated(asked.slot.sequence):
                    asked.slot.verdict = _of_tree(asked, stands, token)


def _of_chain(asked: _Asked, count: int, token: int) -> Verdict:
    """count: of the tokens that were tested, how many stand."""
    slot, tested, proposal = asked.slot, asked.tested, asked.slot.proposal
    whole = count == len(tested) or tested[count] == len(proposal)
    accepted = len(proposal) if whole else tested[count]
    for i, drafted in enumerate(proposal.tokens[:accepted]):
        if drafted in slot.sequence.request.stop_ids:
            return Verdict(i + 1, drafted)
    if whole and len(proposal) - 1 in asked.forced:
        return Verdict(accepted, asked.forced[len(proposal) - 1])
    if count == len(tested) and proposal.tail is not None:
        return Verdict(accepted, proposal.tail[0])
    return Verdict(accepted, _allowed(token))


def _of_tree(asked: _Asked, stands: Seq[int], token: int) -> Verdict:
    """stands: of all rows."""
    slot, proposal = asked.slot, asked.slot.proposal
    nodes = [i for i in range(len(proposal)) if stands[asked.first + 1 + i]]
    for count, node in enumerate(nodes, start=1):
        if proposal.tokens[node] in slot.sequence.request.stop_ids:
            return Verdict(count, proposal.tokens[node], tuple(nodes[:count]))
    last = nodes[-1] if nodes else -1
    if last in asked.forced:
        return Verdict(len(nodes), asked.forced[last], tuple(nodes))
    return Verdict(len(nodes), _allowed(token), tuple(nodes))


def _allowed(token: int) -> int:
    if token < 0:
        raise NoTokenAllowed("no token can be sampled here")
    return token


@dataclass(frozen=True, slots=True)
class _Row:
    """number: among the logits. draft: the token that is tested, -1: none; claims [V]: what it was
    drawn from, None: certain. words [W]: the grammar's mask, None: everything is allowed. parent:
    of a tree, the row before, -1. position: of the token that follows; coined: of the token that
    the coin is for, and its number among those that were tried at it."""

    slot: Slot
    number: int
    draft: int
    claims: Tensor | None
    words: Tensor | None
    parent: int
    position: int
    coined: tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Asked:
    """first: its first row. tested: of a chain, which tokens were tested (K: the tail). forced:
    what the grammar forces behind a token that nothing drafted follows (-1: the committed ones)."""

    slot: Slot
    first: int
    tested: Seq[int]
    forced: Mapping[int, int]


@dataclass(slots=True)
class _Rows:
    """The rows of several sequences, and what the kernels take of them."""

    logits: Tensor
    asked: list[_Asked] = field(default_factory=list)
    rows: list[_Row] = field(default_factory=list)

    def add(self, slot: Slot) -> None:
        """Raises what the constraint raises; then nothing was added."""
        tree, words, forced = slot.proposal.parents is not None, *_looked(slot, self._words)
        rows, tested = (self._of_tree if tree else self._of_chain)(slot, words)
        self.asked.append(_Asked(slot, len(self.rows), tested, forced))
        self.rows += rows

    @property
    def _words(self) -> int:
        return -(-self.logits.shape[1] // 32)

    def _of_chain(self, slot: Slot, words: Seq[Tensor | None]) -> tuple[list[_Row], list[int]]:
        """A row for each token that is tested, the tail among them, and one behind all."""
        proposal, numbers = slot.proposal, slot.verify_rows()
        first, last = len(slot.sequence.view.tokens), len(proposal)
        tokens, probs = list(proposal.tokens), proposal.draft_probs
        tests = [i for i, source in enumerate(proposal.sources) if source != FORCED]
        claims = [None if probs is None else probs[i] for i in tests]
        if proposal.tail is not None:
            tokens.append(proposal.tail[0])
            tests, claims = [*tests, last], [*claims, proposal.tail[1]]
        rows = []
        for i, claim in zip([*tests, last], [*claims, None], strict=True):
            number = numbers[i]
            assert number is not None, "a token that is not forced needs its row of logits"
            draft = tokens[i] if len(rows) < len(tests) else -1
            rows.append(_Row(slot, number, draft, claim, words[i], -1, first + i, (first + i, 0)))
        return rows, tests

    def _of_tree(self, slot: Slot, words: Seq[Tensor | None]) -> tuple[list[_Row], list[int]]:
        """A row behind the committed tokens, and one behind each token of the tree."""
        proposal, first = slot.proposal, len(slot.sequence.view.tokens)
        numbers, above = slot.verify_rows(), (-1, *proposal.above)
        probs, depth = proposal.draft_probs, [0] * (len(proposal) + 1)
        rows = []
        for i, number in enumerate(numbers):
            assert number is not None, "a tree with forced tokens"
            if i:
                depth[i] = depth[above[i] + 1] + 1
            claims = None if probs is None or not i else probs[i - 1]
            draft = proposal.tokens[i - 1] if i else -1
            parent = len(self.rows) + above[i] + 1 if i else -1
            coined = first + depth[i] - 1, proposal.above[: max(i - 1, 0)].count(above[i])
            rows.append(
                _Row(slot, number, draft, claims, words[i], parent, first + depth[i], coined)
            )
        return rows, []

    def parents(self) -> Tensor:
        """[R] int32 on the device."""
        found = [row.parent for row in self.rows]
        return torch.tensor(found, dtype=torch.int32).to(self.logits.device)

    def chains(self) -> Chains:
        """All rows as the kernels take them, on the device."""
        device, params = self.logits.device, [row.slot.sequence.view.sampling for row in self.rows]
        entropies = [row.slot.sequence.entropy for row in self.rows]
        numbers = [row.number for row in self.rows]
        in_order = numbers == list(range(len(self.logits)))

        def row_of(values: list, dtype: torch.dtype) -> Tensor:
            return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)

        coins = [
            e.uniform(row.coined[0], Purpose.ACCEPT, row.coined[1])
            for e, row in zip(entropies, self.rows, strict=True)
        ]
        picks = [
            e.uniform(row.position, Purpose.SAMPLE)
            for e, row in zip(entropies, self.rows, strict=True)
        ]
        keys = [
            _signed(key(e.key, row.position)) if e.seeded else 0
            for e, row in zip(entropies, self.rows, strict=True)
        ]
        return Chains(
            logits=self.logits if in_order else self.logits[row_of(numbers, torch.int64)],
            starts=row_of([*(a.first for a in self.asked), len(self.rows)], torch.int32),
            drafts=row_of([row.draft for row in self.rows], torch.int32),
            temperature=row_of([0.0 if p.greedy else p.temperature for p in params], torch.float32),
            top_k=row_of([p.top_k for p in params], torch.int32),
            top_p=row_of([p.top_p for p in params], torch.float32),
            min_p=row_of([p.min_p for p in params], torch.float32),
            seeded=row_of([int(e.seeded) for e in entropies], torch.int32),
            key=row_of(keys, torch.int64),
            coin=row_of(coins, torch.float64),
            pick=row_of(picks, torch.float64),
            mask=self._mask(),
            draft_probs=self._claims(),
        )

    def _mask(self) -> Tensor | None:
        """[R, W] int32; None where nothing is forbidden."""
        if all(row.words is None for row in self.rows):
            return None
        free = torch.full((-(-self.logits.shape[1] // 32),), -1, dtype=torch.int32)
        words = [free if row.words is None else row.words for row in self.rows]
        return torch.stack(words).to(self.logits.device, non_blocking=True)

    def _claims(self) -> Tensor | None:
        """[R, V] float32 that drafts were drawn from; of a certain one all mass is on it."""
        if all(row.claims is None for row in self.rows):
            return None
        made = torch.zeros(len(self.rows), self.logits.shape[1], device=self.logits.device)
        for i, row in enumerate(self.rows):
            if row.claims is not None:
                made[i] = row.claims
            elif row.draft >= 0:
                made[i, row.draft] = 1.0
        return made


def _looked(slot: Slot, count: int) -> tuple[list[Tensor | None], dict[int, int]]:
    """What may stand behind the committed tokens and behind each drafted one, in ``count`` mask
    words (None: anything, or nothing is asked there); and what is forced (``_Asked``)."""
    proposal, numbers = slot.proposal, slot.verify_rows()
    words: list[Tensor | None] = [None] * (len(proposal) + 1)
    forced: dict[int, int] = {}
    with Walk(slot.sequence.view.constraint, slot.sequence.request.stop_ids) as walk:
        waiting = [(-1, 0)]
        while waiting:
            node, moved = waiting.pop()
            walk.back(walk.moved - moved)
            if node >= 0 and not walk.advance(proposal.tokens[node]):
                continue
            if numbers[node + 1] is not None:
                words[node + 1] = walk.words(count)
            below = proposal.below(node)
            if not below:
                forced.update((node, token) for token in walk.forced(1))
            waiting += [(child, walk.moved) for child in reversed(below)]
    return words, forced


def _signed(value: int) -> int:
    """The int64 of the same bits."""
    return value - (1 << 64) if value >= 1 << 63 else value
