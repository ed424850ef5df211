"""The values of routing. A decision is logged whole, so that a policy can be judged on it later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec import UnsetType

from agentspec.backends.base import Backend
from agentspec.wire.chat import Usage
from agentspec.wire.errors import AgentspecError, UpstreamFailed, UpstreamUnreachable

from .taskclass import TaskClass

_MOST_TOK = 2**48
"""As much as a row holds: what backends tell may be anything."""


@dataclass(frozen=True, slots=True)
class Situation:
    """What a policy may look at. All of it is known before the first byte.

    model: the name the client asked for; workload: the kind of work (``taskclass.KINDS``).
    backends: the model's backends in the configured order. names: its name at each, where known.
    task: the whole class. needs: what a backend must be able to do (``backends.capabilities``).
    guess_tok: the prompt's tokens, guessed from its bytes; most_out_tok: the answer's limit.
    """

    model: str
    session_id: str
    workload: str
    backends: tuple[str, ...]
    key_id: str = ""
    task: TaskClass | None = None
    needs: frozenset[str] = frozenset()
    guess_tok: int = 0
    most_out_tok: int | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A backend that was weighed. reason: why it stands where it stands. score: the lower the
    better. chance: with which it was to be chosen. predicted: what the score rests on."""

    backend: str
    eligible: bool
    reason: str
    score: float | None = None
    chance: float | None = None
    predicted: dict[str, float | None] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try of a backend; ``error`` is the code it failed with before its first byte.

    tokens: what it told of a call that failed, under the names of a row's columns. unclear: it may
    have run, and nobody told: not so where it couldn't be reached, or turned the request away by a
    status of its own.
    """

    backend: str
    error: str | None = None
    tokens: dict[str, int] | None = None
    unclear: bool | None = None


@dataclass(slots=True)
class Decision:
    """Which backends to try, and why.

    order: backends to try, best first; never empty. reason: why ``order[0]`` comes first.
    propensity: the probability with which the policy would choose ``order[0]`` in this situation.
    task: what was asked for, as far as it mattered. load: requests at ``order[0]`` then.
    shadow: what another policy would have chosen.
    chosen, chosen_kind, attempts: filled in as the decision is carried out. running: the backend
    whose call runs, "" for none.
    """

    policy: str
    order: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    reason: str
    propensity: float = 1.0
    task: dict[str, Any] | None = None
    load: float | None = None
    shadow: dict[str, Any] | None = None
    chosen: str = ""
    chosen_kind: str = ""
    attempts: list[Attempt] = field(default_factory=list)
    running: str = ""

    def begin(self, backend: Backend) -> None:
        """A backend is tried now. Noted first, so that a request cancelled meanwhile shows it."""
        self.chosen, self.chosen_kind = backend.name, backend.kind
        self.running = backend.name
        self.attempts.append(Attempt(backend.name))

    def failed(self, error: AgentspecError) -> None:
        """The attempt begun last ended with an error."""
        tokens = None if error.usage is None else token_counts(error.usage)
        unclear = tokens is None and _may_have_run(error)
        self.attempts[-1] = Attempt(
            self.chosen, error.code or error.type, tokens, True if unclear else None
        )

    def why(self) -> str:
        """Why ``chosen`` was the last one tried: the policy's reason, or what failed before it."""
        failed = self.attempts[:-1]
        if not failed:
            return self.reason
        if failed[-1].backend == self.chosen:
            return f"{self.reason}; asked again after {', '.join(a.error or '' for a in failed)}"
        told = [f"'{attempt.backend}' failed ({attempt.error})" for attempt in failed]
        told[0] = f"'{failed[0].backend}' ({self.reason}) failed ({failed[0].error})"
        return f"{', '.join(told)}; '{self.chosen}' is next in order"

    def as_record(self) -> dict[str, Any]:
        """The decision as the ledger keeps it (plain JSON)."""
        record = {
            "policy": self.policy,
            "chosen": self.chosen,
            "reason": self.why(),
            "propensity": self.propensity,
            "candidates": [_without_none(c) for c in self.candidates],
            "attempts": [_without_none(a) for a in self.attempts],
        }
        more = {"task": self.task, "load": self.load, "shadow": self.shadow}
        return record | {name: value for name, value in more.items() if value is not None}


def _may_have_run(error: AgentspecError) -> bool:
    """Of a call that failed; a verdict of our own was given before anything was sent."""
    if not isinstance(error, UpstreamFailed) or isinstance(error, UpstreamUnreachable):
        return False
    return error.status is None


def token_counts(usage: Usage) -> dict[str, int]:
    """Usage under the names of a row's columns; what is 0 is left out."""
    inputs, outputs = usage.prompt_tokens_details, usage.completion_tokens_details
    counts: dict[str, int | UnsetType] = {
        "in_tok": usage.prompt_tokens,
        "out_tok": usage.completion_tokens,
        "cached_tok": inputs.cached_tokens if inputs else 0,
        "cache_write_tok": inputs.cache_write_tokens if inputs else 0,
        "cache_write_1h_tok": inputs.cache_write_1h_tokens if inputs else 0,
        "reason_tok": outputs.reasoning_tokens if outputs else 0,
    }
    return {name: min(count, _MOST_TOK) for name, count in counts.items() if count and count > 0}


def _without_none(value: Candidate | Attempt) -> dict[str, Any]:
    fields = {name: getattr(value, name) for name in value.__slots__}
    return {name: field for name, field in fields.items() if field is not None}
