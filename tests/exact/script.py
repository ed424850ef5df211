"""A drafter that knows the answer beforehand, and spoils it at places of its own choice."""

from __future__ import annotations

from collections.abc import Sequence as Seq
from hashlib import blake2b
from typing import Any

from agentspec.engine.draft.base import EMPTY, DraftView, Proposal

_SPOILT_ONE_IN = 7


class Script:
    """Proposes what it learnt, with about one token in seven exchanged for another.

    Which ones depends on position and length alone, so a run can be repeated.
    """

    name = "script"
    taps: tuple[int, ...] = ()

    def __init__(self) -> None:
        self._known: dict[tuple[Any, ...], list[int]] = {}

    def learn(self, case: Any, prompt: Seq[int], answer: Seq[int]) -> None:
        """case: anything with a ``temperature``."""
        self._known[tuple(prompt), case.temperature == 0] = list(answer)

    def open(self, view: DraftView) -> None:
        return

    def propose(self, views: Seq[DraftView], limits: Seq[int]) -> list[Proposal]:
        return [self._one(view, limit) for view, limit in zip(views, limits, strict=True)]

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        return

    def close(self, view: DraftView) -> None:
        return

    def _one(self, view: DraftView, limit: int) -> Proposal:
        key = tuple(view.tokens[: view.prompt_length]), view.sampling.greedy
        done = len(view.tokens) - view.prompt_length
        tokens = self._known.get(key, [])[done : done + limit]
        tokens = [t + 1 if _spoilt(done, i) else t for i, t in enumerate(tokens)]
        if not tokens:
            return EMPTY
        return Proposal(tuple(tokens), (self.name,) * len(tokens), (0.9,) * len(tokens))


class ScriptTree(Script):
    """The same tokens, of ``script``, each between two siblings of which one has a child."""

    name = "tree"

    def __init__(self, script: Script) -> None:
        self._known = script._known

    def _one(self, view: DraftView, limit: int) -> Proposal:
        chain = super()._one(view, max(1, limit // 4))
        tokens: list[int] = []
        parents: list[int] = []
        confidence: list[float] = []
        above = -1
        for token in chain.tokens:
            first = len(tokens)
            tokens += [token ^ 1, token, token ^ 2, token]
            parents += [above, above, above, first]
            confidence += [1.0, 1.0, 1.0, 1.0]
            above = first + 1
        count = min(limit, len(tokens))
        whole = Proposal(
            tuple(tokens), (self.name,) * len(tokens), tuple(confidence), None, tuple(parents)
        )
        return whole.cut(count)


def _spoilt(done: int, index: int) -> bool:
    return blake2b(f"{done}/{index}".encode()).digest()[0] % _SPOILT_ONE_IN == 0
