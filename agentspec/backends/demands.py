"""What a request demands of its answer, held against an answer that came from a backend which may
not keep to it: which tools may be called, whether one must be, how many; the form of its text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.choice import ANY_OBJECT, Calls, demanded_calls
from agentspec.toolcall.readable import readable
from agentspec.toolcall.typed import types_of
from agentspec.wire.chat import ChatRequest, ResponseFormat
from agentspec.wire.think import split

from .answer_form import JsonGate, unwrapped

CALL, ANSWER = "invalid_tool_call", "invalid_answer"


@dataclass(frozen=True, slots=True)
class Wrong:
    """What is wrong with an answer. code: of the error that tells it; mend: what is to be done
    instead, in the words of an instruction."""

    code: str
    text: str
    mend: str


ARGUMENTS = "Call again, with arguments that satisfy the tools' schemas."
_FORM = "Answer again, in that form and with nothing around it."


def feedback(wrong: Sequence[Wrong]) -> str:
    """What a model is told that has to answer again."""
    reasons = "\n".join(one.text for one in wrong)
    mends = "\n".join(dict.fromkeys(one.mend for one in wrong))
    calls = ", so none of its calls was made" if any(one.code == CALL for one in wrong) else ""
    return f"Your last answer was wrong{calls}.\n{reasons}\n{mends}"


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

    @property
    def allowed(self) -> str:
        """What may be called, as an instruction."""
        if not self.names:
            return "Answer again in text, and call no tool."
        listed = ", ".join(f"'{name}'" for name in sorted(self.names))
        return f"Answer again. Of the tools these alone may be called: {listed}."

    def of_calls(self, names: Sequence[str]) -> list[Wrong]:
        """What is wrong with having made these calls. A name that no tool has is judged elsewhere,
        unless nothing may be called at all."""
        if not names and self.calls == "must":
            one = f"call the tool '{min(self.names)}'" if len(self.names) == 1 else "call a tool"
            mend = f"Answer again, and {one}."
            return [Wrong(CALL, f"it had to {one} (tool_choice) and did not", mend)]
        return [
            Wrong(CALL, f"the tool '{name}' may not be called in this answer", self.allowed)
            for name in dict.fromkeys(names)
            if name not in self.names
        ]

    def mended(self, text: str) -> str:
        """An answer's text in the form that was asked for, where it holds it and nothing else that
        means anything; else the text as it is."""
        if self.answer is None or self.answer.check(text) is None:
            return text
        bare = unwrapped(text)
        return text if self.answer.check(bare) is not None else bare

    def gate(self) -> JsonGate:
        """For the text of one choice, where its form is demanded."""
        assert self.answer is not None, "only what has a form is held"
        return JsonGate(types_of(self.answer.document, _root(self.answer.document)), self.mended)

    def of_text(self, text: str) -> list[Wrong]:
        """What is wrong with the text of an answer without calls."""
        wrong = None if self.answer is None else self.answer.check(split(text)[1])
        told = f"response_format is not kept to: {wrong}"
        return [] if wrong is None else [Wrong(ANSWER, told, _FORM)]


def _root(document: Any) -> dict[str, Any]:
    return document if isinstance(document, dict) else {}


def _checker(wanted: ResponseFormat | None) -> ValueChecker | None:
    if wanted is None or wanted.type not in ("json_object", "json_schema"):
        return None
    schema = wanted.json_schema.schema if wanted.json_schema is not None else None
    if wanted.type == "json_object" or schema is None:
        schema = ANY_OBJECT
    name = wanted.json_schema.name if wanted.json_schema is not None else ""
    owner = f"response_format '{name}'"
    return ValueChecker(readable(schema, "response_format.json_schema.schema", owner))
