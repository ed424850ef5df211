"""How the text of an answer is to be read: as plain text, as text with calls, as one of the two.

A ``Reading`` follows from the request alone and is shared by its choices.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agentspec.toolcall.check import ArgumentsChecker, ValueChecker
from agentspec.toolcall.choice import OutputSpec
from agentspec.toolcall.format import ToolFormat
from agentspec.toolcall.marks import Marks
from agentspec.toolcall.parser import Event, Parser, TextDelta
from agentspec.wire.chat import ChatRequest


class TextReader(Protocol):
    def feed(self, text: str) -> list[Event]: ...
    def finish(self) -> list[Event]: ...


class PlainText:
    """All text is text."""

    def feed(self, text: str) -> list[Event]:
        return [TextDelta(text)] if text else []

    def finish(self) -> list[Event]:
        return []


class MarkedText:
    """Text in which characters stand for special tokens, read by a parser that tells them apart."""

    def __init__(self, parser: Parser, marks: Marks):
        self._parser, self._marks = parser, marks

    def feed(self, text: str) -> list[Event]:
        pieces = self._marks.pieces(text)
        return [e for piece, special in pieces for e in self._parser.feed(piece, special=special)]

    def finish(self) -> list[Event]:
        return self._parser.finish()


class CallsOrText:
    """Either calls or a text without any, told apart by how it begins.

    So a marker inside a JSON answer's string is part of that string. opening: the marker as it
    stands in the text.
    """

    def __init__(self, opening: str, parser: TextReader):
        self._opening, self._parser = opening, parser
        self._begun = ""
        self._reader: TextReader | None = None

    def feed(self, text: str) -> list[Event]:
        if self._reader is not None:
            return self._reader.feed(text)
        self._begun += text
        head = self._begun.lstrip()
        if self._opening.startswith(head):
            return []
        calls = head.startswith(self._opening)
        self._reader = self._parser if calls else PlainText()
        return self._reader.feed(self._begun)

    def finish(self) -> list[Event]:
        if self._reader is not None:
            return self._reader.finish()
        return self._parser.feed(self._begun) + self._parser.finish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How one request's answers are read and checked.

    spec: the demanded form; None is free text. calls_refused: tools were shown to nobody or may not
        be called, so that a call which the model writes all the same is dropped. named: tool_choice
        names the one tool. tools: name -> schema of the parameters. thinks: the text may begin with
        reasoning; in_reasoning: the prompt has opened it. marks: special tokens that come as such.
    """

    format: ToolFormat
    spec: OutputSpec | None
    arguments: ArgumentsChecker
    answer: ValueChecker | None
    calls_refused: bool
    named: bool
    tools: Mapping[str, Any]
    thinks: bool = False
    in_reasoning: bool = False
    marks: Marks = field(default_factory=Marks)

    @classmethod
    def of(
        cls,
        request: ChatRequest,
        fmt: ToolFormat,
        spec: OutputSpec | None,
        *,
        in_reasoning: bool = False,
        marks: Marks | None = None,
    ) -> Reading:
        raw = request.agentspec is not None and request.agentspec.raw
        choice = request.tool_choice
        answer = spec.answer if spec is not None else None
        return cls(
            format=fmt,
            spec=spec,
            arguments=ArgumentsChecker(request.tools or []),
            answer=ValueChecker(answer.schema) if answer is not None else None,
            calls_refused=bool(request.tools) and spec is None,
            named=isinstance(choice, dict) and choice.get("type") == "function",
            tools={tool.function.name: tool.function.parameters for tool in request.tools or ()},
            thinks=not raw and (fmt.reasoning is not None or fmt.channels is not None),
            in_reasoning=in_reasoning,
            marks=marks or Marks(),
        )

    @property
    def calls_required(self) -> bool:
        return self.spec is not None and self.spec.calls == "must"

    def text_reader(self) -> TextReader:
        """A reader for the text of one choice."""
        if self.calls_refused:
            return self._parser()
        if self.spec is None or self.spec.calls == "never":
            return PlainText() if self.plain else self._parser(calls=False)
        if self.spec.answer is not None:
            return CallsOrText(self.marks.marked(self.format.open), self._parser())
        return self._parser()

    @property
    def plain(self) -> bool:
        """Whether all text is text."""
        return (
            not self.thinks
            and not self.calls_refused
            and (self.spec is None or self.spec.calls == "never")
        )

    def _parser(self, *, calls: bool = True) -> TextReader:
        parser = Parser(
            self.format,
            self.tools,
            calls=calls,
            in_reasoning=self.in_reasoning,
            special=self.marks.ids,
        )
        return MarkedText(parser, self.marks) if self.marks.ids else parser
