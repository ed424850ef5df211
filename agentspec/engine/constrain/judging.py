"""A whole answer judged as it is written: the checked values in it, wherever they stand.

A judge's states are values like a reader's. JSON answers and calls with JSON arguments are judged
at every border; arguments in another encoding once their call is whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any, Protocol

from agentspec.toolcall.check import ArgumentsChecker
from agentspec.toolcall.choice import OutputSpec
from agentspec.toolcall.format import ToolFormat
from agentspec.toolcall.parser import CallDropped, CallEnd, Parser
from agentspec.toolcall.schema import subschemas
from agentspec.wire.chat import FunctionDef, Tool

from .borders import Reader
from .definite import Definite, all_masked
from .names import open_to_keys


class Verdict(Protocol):
    """The state after some text."""

    @property
    def broken(self) -> bool:
        """Nothing that follows can make this text right."""
        ...

    @property
    def complete(self) -> bool:
        """Whether the text is right as it stands, should it end here."""
        ...

    @property
    def borders(self) -> int:
        """How many values have ended."""
        ...

    @property
    def in_free_string(self) -> bool:
        """Whether a string stands open of which masks hold all that is asked."""
        ...

    def fed(self, text: bytes) -> Verdict: ...


@dataclass(frozen=True, slots=True)
class AnswerVerdict:
    """A JSON value that is the whole answer."""

    reader: Reader

    @property
    def broken(self) -> bool:
        return self.reader.broken

    @property
    def complete(self) -> bool:
        ended = self.reader.finished()
        return ended.mode == "done" and not ended.broken

    @property
    def borders(self) -> int:
        return self.reader.ended

    @property
    def in_free_string(self) -> bool:
        return self.reader.in_free_string

    def fed(self, text: bytes) -> AnswerVerdict:
        return AnswerVerdict(self.reader.fed(text)[0])


@dataclass(frozen=True, slots=True)
class CallsVerdict:
    """Calls with JSON arguments, each behind its head; an answer instead, where one may be.

    frame: the text since the last arguments. reader: of the arguments that stand open.
    """

    format: ToolFormat
    functions: Mapping[str, Definite]
    answer: Definite | None = None
    frame: bytes = b""
    reader: Reader | None = None
    index: int = 0
    broken: bool = False
    borders: int = 0

    @property
    def complete(self) -> bool:
        return not self.broken and (self.reader is None or self._whole_answer())

    def _whole_answer(self) -> bool:
        assert self.reader is not None
        ended = self.reader.finished()
        return ended.mode == "done" and not ended.broken

    @property
    def in_free_string(self) -> bool:
        return self.reader is not None and self.reader.in_free_string

    def fed(self, text: bytes) -> CallsVerdict:
        state, pos = self, 0
        while pos < len(text) and not state.broken:
            state, used = state._step(text[pos:])
            pos += used
        return state

    def _step(self, text: bytes) -> tuple[CallsVerdict, int]:
        if self.reader is None:
            return self._framed(text[:1]), 1
        reader, used = self.reader.fed(text)
        borders = self.borders + reader.ended - self.reader.ended
        state = replace(self, reader=reader, broken=reader.broken, borders=borders)
        if reader.mode == "done" and not self.frame:
            # An answer, not a call: nothing may follow it.
            return replace(state, broken=state.broken or used < len(text)), max(used, 1)
        if reader.mode == "done":
            state = replace(state, reader=None, frame=b"", index=self.index + 1)
        return state, used

    def _framed(self, byte: bytes) -> CallsVerdict:
        """One more byte outside of arguments: do they begin behind it?"""
        frame = self.frame + byte
        if self.answer is not None and not self._may_open(frame):
            reader, _ = Reader(self.answer).fed(frame)
            return replace(self, frame=b"", reader=reader, broken=reader.broken)
        for name, definite in self.functions.items():
            if frame.endswith(self._head(name)):
                return replace(self, frame=frame, reader=Reader(definite))
        return replace(self, frame=frame)

    def _may_open(self, frame: bytes) -> bool:
        opening = self.format.open.encode()
        return self.index > 0 or opening.startswith(frame) or frame.startswith(opening)

    def _head(self, name: str) -> bytes:
        head = self.format.head(name, self.index) if self.index else self.format.head(name)
        return head.encode()


@dataclass(frozen=True, slots=True)
class TextVerdict:
    """Calls whose arguments are not JSON: read by the format's parser when the text might end."""

    spec: OutputSpec
    checker: ArgumentsChecker
    text: bytes = b""
    broken: bool = False
    borders: int = 0
    in_free_string: bool = False

    @property
    def complete(self) -> bool:
        parser = Parser(self.spec.format, {f.name: f.parameters for f in self.spec.functions})
        events = [*parser.feed(self.text.decode("utf-8", "replace")), *parser.finish()]
        if any(isinstance(event, CallDropped) for event in events):
            return False
        calls = [event for event in events if isinstance(event, CallEnd)]
        return all(self.checker.check(c.name, c.arguments_text) is None for c in calls)

    def fed(self, text: bytes) -> TextVerdict:
        return replace(self, text=self.text + text, borders=self.borders + text.count(b">"))


def judge_of(spec: OutputSpec, unchecked: Seq[str]) -> Verdict:
    """The state before an answer's first token that is under the grammar.

    unchecked: paths of keywords that the mask does not hold.
    """
    masked = all_masked(unchecked)
    answer = None if spec.answer is None else Definite(spec.answer.schema, masked=masked)
    if not spec.functions:
        assert answer is not None
        return AnswerVerdict(Reader(answer))
    opened = spec.format.open.encode() if spec.calls == "may" and answer is None else b""
    if getattr(spec.format, "encoding", "json") != "json":
        return TextVerdict(spec, ArgumentsChecker(_tools(spec)), opened)
    functions = {f.name: Definite(f.parameters, masked=masked) for f in spec.functions}
    return CallsVerdict(spec.format, functions, answer).fed(opened)


def _tools(spec: OutputSpec) -> list[Tool]:
    return [Tool(FunctionDef(f.name, None, f.parameters)) for f in spec.functions]


def open_object(document: Any) -> bool:
    """Whether a mask's document has an object with keys that it does not list."""
    stack = list(document) if isinstance(document, list) else [document]
    while stack:
        node = stack.pop()
        if not isinstance(node, dict):
            if node is True:
                return True
            continue
        if _takes_any_key(node):
            return True
        stack.extend(sub for sub, step in subschemas(node) if step[0] != "additionalProperties")
    return False


def _takes_any_key(node: dict[str, Any]) -> bool:
    kinds = node.get("type")
    may_be = kinds is None or kinds == "object" or (isinstance(kinds, list) and "object" in kinds)
    elsewhere = any(key in node for key in ("enum", "const", "$ref", "anyOf", "oneOf", "allOf"))
    members = ("properties", "patternProperties", "additionalProperties")
    if not may_be or (elsewhere and not any(key in node for key in members)):
        return False
    return open_to_keys(node)
