"""Several answers to one prompt: the first computes the prompt, the others find it in the cache.

Were all added at once, each would compute the prompt for itself, since none has published it yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from collections.abc import Sequence as Seq
from typing import Protocol

from agentspec.wire.errors import Overloaded

from .request import GenerationRequest, Output


class Adding(Protocol):
    def add(self, request: GenerationRequest, /) -> object: ...
    def abort(self, id: str, /) -> object: ...


class Followers:
    """Adds and aborts requests at an engine; called from the engine's thread.

    A request whose leader was taken has a place: where the queue is full it waits a step more.
    """

    def __init__(self, engine: Adding):
        self._engine = engine
        self._behind: dict[str, Seq[GenerationRequest]] = {}
        self._due: deque[GenerationRequest] = deque()

    @property
    def due(self) -> bool:
        """Whether some could be added now."""
        return bool(self._due)

    def add(self, requests: Seq[GenerationRequest]) -> None:
        """Add the first of ``requests``, which share a prompt. Raises as ``Engine.add`` does."""
        leader, *rest = requests
        self._engine.add(leader)
        if rest:
            self._behind[leader.id] = rest

    def release(self, outputs: Seq[Output]) -> None:
        """A step has ended: who led in it has computed its prompt, or is gone."""
        for output in outputs:
            if output.tokens or output.finish_reason is not None:
                self._due.extend(self._behind.pop(output.id, ()))

    def add_due(self) -> None:
        """Add those whose leader is ahead, as far as the queue has room."""
        while self._due:
            try:
                self._engine.add(self._due[0])
            except Overloaded:
                return
            self._due.popleft()

    def abort(self, ids: Collection[str]) -> None:
        """Give up what was added, forget what was not."""
        for id in ids:
            self._behind.pop(id, None)
            self._engine.abort(id)
        self._due = deque(request for request in self._due if request.id not in ids)
