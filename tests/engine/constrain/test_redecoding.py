"""Tokens that are not viable are taken back by the engine, with and without drafts alike."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from agentspec.engine.constrain import ConstraintViolated
from tests.engine.core.toy import JSON_LIKE, Dfa, DfaSession
from tests.engine.core.world import World, make

torch.set_num_threads(1)


class PickySession(DfaSession):
    """Every token that is a multiple of three turns out wrong, where there is another one."""

    def __init__(self, dfa: Dfa, path: list[str]):
        super().__init__(dfa, path)
        self.last = -1
        self.banned: dict[int, set[int]] = {}

    def accept(self, tokens) -> None:
        super().accept(tokens)
        self.last = tokens[-1]

    def allows(self, token: int) -> bool:
        return token not in self.banned.get(len(self.path), ()) and super().allows(token)

    def masks(self, draft, rows: torch.Tensor) -> int:
        """rows: [len(draft)+1, W] int32."""
        legal = super().masks(draft, rows)
        for token in self.banned.get(len(self.path), ()):
            rows[0, token >> 5] &= ~(1 << (token & 31))
        return legal

    def viable(self) -> bool:
        before = PickySession(self.dfa, self.path[:-1])
        return self.last % 3 != 0 or bool(before.forced(1)) or not self._other(before)

    def _other(self, before: DfaSession) -> bool:
        return any(token % 3 for token in self.dfa.options(before.state))

    def ban(self, token: int) -> None:
        self.banned.setdefault(len(self.path), set()).add(token)

    def rollback(self, count: int) -> None:
        super().rollback(count)
        self.banned = {at: held for at, held in self.banned.items() if at <= len(self.path)}

    def clone(self) -> PickySession:
        twin = PickySession(self.dfa, list(self.path))
        twin.last, twin.banned = self.last, {at: set(held) for at, held in self.banned.items()}
        return twin


class Picky(Dfa):
    def session(self) -> DfaSession:
        return PickySession(self, [self.start])


PICKY = Picky(JSON_LIKE.start, JSON_LIKE.moves, JSON_LIKE.accepting)


@pytest.mark.parametrize("seed", range(4))
def test_the_text_is_the_same_with_and_without_drafts(seed: int):
    request = make("r", constraint=PICKY, max_tokens=24, prompt=[1 + seed, 2, 3])
    plain = World().run(replace(request, sources=()))["r"]
    drafted = World().run(replace(request, sources=("echo",)))["r"]
    assert plain.finish_reason == drafted.finish_reason and plain.finish_reason != "error"
    assert plain.text == drafted.text
    report = plain.report
    assert report is not None


def test_what_was_taken_back_is_counted():
    told = [
        World().run(make("r", constraint=PICKY, max_tokens=24, prompt=[seed, 2, 3]))["r"]
        for seed in range(1, 6)
    ]
    assert sum(t.report.redecoded for t in told if t.report) > 0


def test_a_session_that_is_always_viable_bans_nothing():
    session = JSON_LIKE.session()
    assert session.viable()
    with pytest.raises((AssertionError, ConstraintViolated)):
        session.ban(1)
