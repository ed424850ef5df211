"""Policies: a situation in, a decision out. They see no request text and make no call."""

from __future__ import annotations

from typing import Protocol

from .circuit import Circuits
from .decision import Candidate, Decision, Situation


class Policy(Protocol):
    @property
    def name(self) -> str: ...

    def decide(self, situation: Situation) -> Decision:
        """Pure but for the policy's own memory. ``Decision.order`` holds every usable backend."""
        ...


class FixedOrder:
    """The configured order; a backend that could not be reached a moment ago goes to the end.

    It is not left out: where all others fail too, it is the last chance.
    """

    name = "fixed"

    def __init__(self, circuits: Circuits):
        self._circuits = circuits

    def decide(self, situation: Situation) -> Decision:
        candidates = tuple(self._weigh(name) for name in situation.backends)
        ready = tuple(c.backend for c in candidates if c.eligible)
        cooling = tuple(c.backend for c in candidates if not c.eligible)
        if not ready:
            reason = "first in the configured order; every backend is cooling down"
        elif ready[0] == situation.backends[0]:
            reason = "first in the configured order"
        else:
            reason = "first in the configured order that is not cooling down"
        return Decision(self.name, ready + cooling, candidates, reason)

    def _weigh(self, backend: str) -> Candidate:
        if not self._circuits.ready(backend):
            return Candidate(backend, False, self._circuits.why(backend))
        return Candidate(backend, True, "available")
