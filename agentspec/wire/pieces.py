"""A canonical answer read piece by piece: reasoning and text as they come, calls only whole.

A client may run what it takes for a call (some mend torn JSON and run that), so a call is passed
on when its arguments are a whole JSON object, and never before. The engine sends whole calls
anyway; other servers send arguments in pieces, which are held here meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec
from msgspec import UNSET

from .chat import ChatChunk, ChatResponse, ToolCallDelta
from .errors import UpstreamFailed
from .think import ThinkFilter

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_USABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_CUT_SHORT = ("length", "content_filter")


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer's text, of its reasoning, or of a refusal."""

    kind: Literal["text", "reasoning", "refusal"]
    text: str


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call. ``arguments`` is JSON text of an object."""

    id: str
    name: str
    arguments: str

    def values(self) -> dict[str, Any]:
        return _OBJECT.decode(self.arguments)


Piece = Text | Call


@dataclass(slots=True)
class _Growing:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    sent: bool = False

    def whole(self) -> str | None:
        """The arguments, if they are a whole object."""
        text = "".join(self.arguments)
        return text if self.name and text and _is_object(text) else None


class Pieces:
    """Reads choice 0 of one answer.

    call_ids: prefix of the ids given to calls that came without a usable one.
    finish_reason: the upstream's, once it has come.
    """

    def __init__(self, call_ids: str):
        self._call_ids = call_ids
        self._calls: dict[int, _Growing] = {}
        self._latest: dict[int, int] = {}
        self._used_ids: set[str] = set()
        self._think = ThinkFilter()
        self.finish_reason: str | None = None

    def read(self, chunk: ChatChunk) -> list[Piece]:
        """The pieces that this chunk completes."""
        found: list[Piece] = []
        for choice in self._think.chunk(chunk).choices:
            if choice.index != 0:
                continue
            delta = choice.delta
            content = None if delta.content is UNSET else delta.content
            found += _texts(delta.reasoning_content, content, delta.refusal)
            for call in delta.tool_calls or ():
                growing = self._growing(call)
                growing.id = growing.id or call.id or ""
                if call.function is not None:
                    growing.name = growing.name or call.function.name or ""
                    found += self._grow(growing, call.function.arguments or "")
            self.finish_reason = choice.finish_reason or self.finish_reason
        return found

    def _growing(self, call: ToolCallDelta) -> _Growing:
        """The call that a delta belongs to. Some servers give every call the index 0."""
        key = self._latest.get(call.index, call.index)
        found = self._calls.setdefault(key, _Growing())
        if found.sent and call.id and call.id != found.id:
            key = -len(self._calls)
            self._latest[call.index] = key
            found = self._calls.setdefault(key, _Growing())
        return found

    def whole(self, response: ChatResponse) -> list[Piece]:
        """All pieces of an answer that came at once. Raises as ``end`` does."""
        choice = self._think.whole(response).choices[0]
        message = choice.message
        thought = None if message.reasoning_content is UNSET else message.reasoning_content
        found = _texts(thought, message.content, message.refusal)
        calls = [] if message.tool_calls is UNSET else message.tool_calls
        for index, call in enumerate(calls):
            growing = _Growing(call.id or "", call.function.name or "")
            self._calls[index] = growing
            found += self._grow(growing, call.function.arguments or "")
        self.finish_reason = choice.finish_reason
        return found + self.end()

    def end(self) -> list[Piece]:
        """The calls still held. One that an output limit cut short is left out.

        Raises ``UpstreamFailed`` for a call that is torn although the answer claims to be whole.
        """
        found: list[Piece] = []
        for growing in self._calls.values():
            if growing.sent:
                continue
            text = "".join(growing.arguments)
            cut = self.finish_reason in _CUT_SHORT
            if growing.name and not text.strip() and not cut:
                found.append(self._send(growing, "{}"))
            elif not cut:
                raise UpstreamFailed(
                    "The model called a tool with arguments that are not a JSON object.",
                    code="malformed_tool_call",
                )
        return found

    def _grow(self, growing: _Growing, more: str) -> Sequence[Piece]:
        if growing.sent:
            # Some servers send a call without arguments twice: "{}{}".
            if more.strip() and more != "".join(growing.arguments):
                raise UpstreamFailed(
                    "The model's tool call went on after its end.", code="malformed_tool_call"
                )
            return ()
        growing.arguments.append(more)
        if not more.rstrip().endswith("}"):
            return ()
        text = growing.whole()
        return () if text is None else (self._send(growing, text),)

    def _send(self, growing: _Growing, arguments: str) -> Call:
        growing.sent = True
        made = f"{self._call_ids}_{len(self._used_ids)}"
        usable = _USABLE_ID.fullmatch(growing.id) and growing.id not in self._used_ids
        name = growing.id if usable else made
        self._used_ids.add(name)
        return Call(name, growing.name, arguments)


def _texts(reasoning: str | None, content: str | None, refusal: str | None) -> list[Piece]:
    found: list[Piece] = []
    if reasoning:
        found.append(Text("reasoning", reasoning))
    if content:
        found.append(Text("text", content))
    if refusal:
        found.append(Text("refusal", refusal))
    return found


def _is_object(text: str) -> bool:
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True
