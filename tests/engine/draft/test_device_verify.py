"""``device_verify`` against ``verify``, a sequence at a time: the same tokens stand."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest
import torch

from agentspec.engine.device_verify import able, verify_all
from agentspec.engine.draft.base import FORCED, DraftView, Proposal
from agentspec.engine.sampling import Entropy, SamplingParams
from agentspec.engine.slot import Slot
from agentspec.engine.verify import verify
from tests.engine.draft.toyworld import Grammar, ToyConstraint

VOCAB, STOP = 30, 7
RULES = [
    SamplingParams(temperature=0.0),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.1, top_k=9),
    SamplingParams(temperature=0.9, top_p=0.8, min_p=0.01),
]


def grammar() -> Grammar:
    def legal(prefix) -> frozenset[int]:
        return frozenset(random.Random(str(prefix)).sample(range(VOCAB), 12))

    return Grammar(legal, {(): (3, 5), (3, 5, 1): (2,)})


class Case:
    """A slot with a random proposal, and the rows of logits that it asks for."""

    def __init__(self, number: int, first_logit: int):
        rng = self.rng = random.Random(number)
        self.number = number
        constraint = ToyConstraint(grammar()) if rng.random() < 0.6 else None
        if constraint is not None and rng.random() < 0.5:
            constraint.accept((3, 5))
        self.constraint = constraint
        params = rng.choice(RULES)
        seed = rng.choice((None, 11))
        tokens = [1, 2, 3, *range(number % 3)]
        view = DraftView(number, "", None, tokens, 3, params, constraint, {STOP})
        view.entropy = Entropy.of(seed, number)
        self.dense, self.tree = rng.random() < 0.5, rng.random() < 0.4
        self.probs: list[torch.Tensor] = []
        self.ends: list[str] = []
        request = SimpleNamespace(id=str(number), stop_ids={STOP}, logprobs=None)
        sequence = SimpleNamespace(
            view=view, entropy=view.entropy, request=request, tokens=tokens, pending=1,
            computed=len(tokens) - 1, finished=False, table=SimpleNamespace(pages=[0]),
            finish=lambda *words: self.ends.append(" ".join(words)),
        )  # fmt: skip
        self.slot = Slot(sequence, rows=1, proposal=self._tree() if self.tree else self._chain())  # pyright: ignore[reportArgumentType]
        self.slot.place(0, first_logit)
        logits = torch.Generator().manual_seed(number)
        self.logits = 2 * torch.randn(len(self.slot.logit_rows), VOCAB, generator=logits)
        rows, proposal = self.slot.verify_rows(), self.slot.proposal
        for above, token in zip(proposal.above, proposal.tokens, strict=True):
            row = rows[above + 1]
            if row is not None:  # so that something stands
                self.logits[row - first_logit, token] += 4.0

    def _drawn(self, constraint: ToyConstraint | None) -> tuple[int, str]:
        """A legal token and its source; notes what it was drawn from."""
        weights = torch.rand(VOCAB, generator=torch.Generator().manual_seed(self.rng.randrange(99)))
        legal = list(range(VOCAB))
        if constraint is not None:
            legal = sorted(constraint.grammar.allowed(constraint.prefix))
        kept = torch.zeros(VOCAB)
        kept[legal] = weights[legal]
        self.probs.append(kept / kept.sum())
        if constraint is not None and constraint.forced(1):
            return constraint.forced(1)[0], FORCED
        return self.rng.choices(legal, kept[legal].tolist())[0], "x"

    def _probs(self) -> torch.Tensor | None:
        return torch.stack(self.probs) if self.dense and self.probs else None

    def _chain(self) -> Proposal:
        live = self._live()
        tokens, sources = [], []
        for _ in range(self.rng.randrange(6)):
            token, source = self._drawn(live)
            tokens.append(token)
            sources.append(source)
            if token == STOP:
                break
            if live is not None:
                live.accept((token,))
        whole = Proposal(tuple(tokens), tuple(sources), (0.9,) * len(tokens), self._probs())
        return whole.cut(self.rng.randrange(len(whole) + 1)) if len(whole) else whole

    def _tree(self) -> Proposal:
        tokens, parents, states = [], [], {-1: self._live()}
        for i in range(self.rng.randrange(2, 8)):
            parent = self.rng.choice([node for node, live in states.items() if live is not STOP])
            live = states[parent]
            if live is not None and live.forced(1):
                continue  # a forced token within a tree isn't one of these
            token, _ = self._drawn(live)
            i = len(tokens)
            tokens.append(token)
            parents.append(parent)
            after = None if live is None else live.clone()
            if token == STOP:
                after = STOP
            elif after is not None:
                after.accept((token,))
            states[i] = after
        if not tokens:
            return Proposal()
        count = len(tokens)
        return Proposal(
            tuple(tokens), ("x",) * count, (1.0,) * count, self._probs(), tuple(parents)
        )

    def _live(self) -> ToyConstraint | None:
        return None if self.constraint is None else self.constraint.clone()


def cases(numbers: range) -> tuple[list[Case], torch.Tensor]:
    """Cases one after the other, and the logits of their pass."""
    made: list[Case] = []
    for number in numbers:
        made.append(Case(number, sum(len(case.logits) for case in made)))
    return made, torch.cat([case.logits for case in made])


def check(made: list[Case], logits: torch.Tensor, backend: str) -> int:
    """How many drafted tokens stood."""
    verify_all([case.slot for case in made], logits, backend=backend)
    for case in made:
        slot, sequence = case.slot, case.slot.sequence
        expected = verify(
            sequence.view, slot.proposal, logits.double(), slot.verify_rows(),
            sequence.entropy, {STOP},
        )  # fmt: skip
        assert slot.verdict == expected, (case.number, slot.proposal)
        assert case.ends == [] and (
            case.constraint is None or case.constraint.prefix in ((), (3, 5))
        )
    return sum(case.slot.verdict.accepted for case in made if case.slot.verdict)


def test_all_stand_as_by_the_rule() -> None:
    made, logits = cases(range(300))
    assert all(able(case.slot) for case in made)
    kinds = {(case.tree, case.dense, case.constraint is None) for case in made}
    assert len(kinds) == 8
    assert any(case.slot.proposal.tail is not None for case in made)
    assert check(made, logits, "reference") > 200


def test_by_the_kernels_too() -> None:
    made, logits = cases(range(40))
    assert check(made, logits, "triton") > 25


def test_rows_out_of_order_are_found() -> None:
    made, logits = cases(range(300, 330))
    check(made[::-1], logits, "reference")


def test_a_row_that_allows_nothing_ends_its_sequence_alone() -> None:
    made, logits = cases(range(20))
    bad = next(case for case in made if not len(case.slot.proposal) and case.constraint is None)
    logits[bad.slot.first_logit] = torch.nan
    verify_all([case.slot for case in made], logits, backend="reference")
    assert bad.ends == ["error NoTokenAllowed: no token can be sampled here"]
    assert [case.number for case in made if case.slot.verdict is None] == [bad.number]


def test_a_constraint_that_fails_ends_its_sequence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    made, logits = cases(range(20))
    bad = next(case for case in made if case.constraint is not None)

    def broken(*_: object) -> int:
        raise RuntimeError("broken")

    monkeypatch.setattr(bad.constraint, "masks", broken)
    verify_all([case.slot for case in made], logits, backend="reference")
    assert bad.ends == ["error RuntimeError: broken"] and bad.slot.verdict is None
    assert all(case.slot.verdict is not None for case in made if case is not bad)


def test_penalties_and_forced_tokens_in_trees_are_left_to_the_rule() -> None:
    made, _ = cases(range(1))
    slot = made[0].slot
    slot.proposal = Proposal((3, 5), ("x", FORCED), (1.0, 1.0), None, (-1, -1))
    assert not able(slot)
    slot.proposal = Proposal((3, 5), ("x", FORCED), (1.0, 1.0))
    assert able(slot)
    slot.sequence.view.sampling = SamplingParams(frequency_penalty=0.5)
    assert not able(slot)
