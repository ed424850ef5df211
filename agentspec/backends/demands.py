"""What a request demands of its answer, held against an answer that came from a backend which may
not keep to it: which tools may be called, whether one must be, how many; the form of its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.choice import ANY_OBJECT, Calls, demanded_calls
from agentspec.toolcall.readable import readable
from agentspec.wire.chat import ChatRequest, ResponseFormat
from agentspec.wire.think import split

CALL, ANSWER = "invalid_tool_call", "invalid_answer"


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with an answer. code: of the error that tells it."""

    code: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Demands:
    """calls: whether tools may, must or must not be called; names: those that may be; one: at most
    one call. answer: of the text where nothing is called; None: it is free."""

    calls: Calls
    names: frozenset[str]
    one: bool
    answer: ValueChecker | None

    @classmethod
    def of(cls, request: ChatRequest) -> Demands:
        """Raises ``InvalidRequest`` for a ``tool_choice`` that can't be kept to."""
        offered = {tool.function.name for tool in request.tools or ()}
        calls, names = demanded_calls(request.tool_choice, offered)
        return cls(
            calls=calls,
            names=frozenset(names) if calls != "never" else frozenset(),
            one=request.parallel_tool_calls is False,
            answer=None if calls == "must" else _checker(request.response_format),
        )

    def of_calls(self, names: Sequence[str]) -> list[Wrong]:
        """What is wrong with having made these calls. A name that no tool has is judged elsewhere,
        unless nothing may be called at all."""
        if not names and self.calls == "must":
            one = f"call the tool '{min(self.names)}'" if len(self.names) == 1 else "call a tool"
            return [Wrong(CALL, f"it had to {one} (tool_choice) and did not")]
        found = [
            Wrong(CALL, f"the tool '{name}' may not be called in this answer")
            for name in dict.fromkeys(names)
            if name not in self.names
        ]
        if self.one and len(names) > 1:
            found.append(Wrong(CALL, "only one call may be made (parallel_tool_calls is off)"))
        return found

    def of_text(self, text: str) -> list[Wrong]:
        """What is wrong with the text of an answer without calls."""
        wrong = None if self.answer is None else self.answer.check(split(text)[1])
        return [] if wrong is None else [Wrong(ANSWER, f"response_format is not kept to: {wrong}")]


def _checker(wanted: ResponseFormat | None) -> ValueChecker | None:
    if wanted is None or wanted.type not in ("json_object", "json_schema"):
        return None
    schema = wanted.json_schema.schema if wanted.json_schema is not None else None
    if wanted.type == "json_object" or schema is None:
        schema = ANY_OBJECT
    name = wanted.json_schema.name if wanted.json_schema is not None else ""
    owner = f"response_format '{name}'"
    return ValueChecker(readable(schema, "response_format.json_schema.schema", owner))
