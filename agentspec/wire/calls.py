"""Tool calls that come in pieces, put together: a call is passed on whole or not at all.

A client may run what it takes for a call (some mend torn JSON and run that), so a call goes on when
its arguments are a whole JSON object, and never before. One that an output limit cut short is left
out; one that is torn although the answer claims to be whole is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET

from .chat import (
    ChatChunk,
    ChatResponse,
    ChunkChoice,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
    call_extras,
)
from .errors import UpstreamFailed
from .nesting import nested_too_deeply
from .surrogates import mended

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_USABLE_ID = re.compile(r"[A-Za-z0-9_-]{1,128}")
_MARKS = re.compile(r'\\.?|["{}\[\]]', re.DOTALL)
_CUT_SHORT = ("length", "content_filter")


@dataclass(frozen=True, slots=True)
class Call:
    """A whole call. ``arguments`` is JSON text of an object."""

    id: str
    name: str
    arguments: str
    extras: dict[str, Any] = field(default_factory=dict, hash=False)
    """Fields of ``CALL_EXTRAS``."""

    def values(self) -> dict[str, Any]:
        return _OBJECT.decode(self.arguments)


def begins(
    own_id: str | None, own_name: str, whole: Callable[[], bool], piece: ToolCallDelta
) -> bool:
    """Whether a piece that comes at a call's index begins another call. Servers give every call the
    same index (Gemini's proxies, without ids even), or every piece of a call another id (vLLM):
    only a name begins a call, with an id of its own or where the call before is whole."""
    name = piece.function.name if piece.function is not None else None
    if not (name and own_name):
        return False
    if piece.id and own_id:
        return piece.id != own_id
    return whole()


class Balance:
    """Whether JSON text, fed in pieces, has closed all that it opened. Each character is looked at
    once, so that arguments in thousands of pieces cost no more than in one."""

    def __init__(self) -> None:
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, piece: str) -> bool:
        """True where the text ends at the close of its outermost bracket."""
        if self._escaped:
            piece, self._escaped = piece[1:], not piece
        for mark in _MARKS.findall(piece):
            if mark[0] == "\\":
                self._escaped = self._in_string and len(mark) == 1
            elif mark == '"':
                self._in_string = not self._in_string
            elif not self._in_string:
                self._depth += 1 if mark in "{[" else -1
        return self._depth == 0 and not self._in_string


@dataclass(slots=True)
class _Growing:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    balance: Balance = field(default_factory=Balance)
    extras: dict[str, Any] = field(default_factory=dict)
    sent: bool = False
    broken: bool = False
    doubtful: bool = False
    """It began with the name of the call before alone: without more, it only repeats it."""

    def is_echo(self) -> bool:
        return self.doubtful and not "".join(self.arguments).strip()

    def whole(self) -> str | None:
        """The arguments, if they are a whole object. What has closed without being one stays
        ``broken``."""
        text = mended("".join(self.arguments))
        self.broken = not is_object(text)
        return text if self.name and not self.broken else None


class CallJoiner:
    """The calls of one choice.

    call_ids: prefix of the ids given to calls that came without a usable one.
    """

    def __init__(self, call_ids: str):
        self._call_ids = call_ids
        self._calls: dict[int, _Growing] = {}
        self._latest: dict[int, int] = {}
        self._used_ids: set[str] = set()

    def read(self, delta: ToolCallDelta) -> list[Call]:
        """The call that this piece completes, if it does.

        Raises ``UpstreamFailed`` for a call that goes on after its end.
        """
        growing = self._growing(delta)
        growing.id = growing.id or delta.id or ""
        growing.extras |= call_extras(delta)
        if delta.function is None:
            return []
        growing.name = growing.name or delta.function.name or ""
        return self._grow(growing, delta.function.arguments or "")

    def whole(self, calls: Iterable[ToolCall], finish_reason: str | None) -> list[Call]:
        """The calls of an answer that came at once. Raises as ``end`` does."""
        found: list[Call] = []
        for index, call in enumerate(calls):
            extras = call_extras(call)
            growing = _Growing(call.id or "", call.function.name or "", extras=extras)
            self._calls[index] = growing
            found += self._grow(growing, call.function.arguments or "")
        return found + self.end(finish_reason)

    def end(self, finish_reason: str | None) -> list[Call]:
        """The calls still held: without arguments, which some tools have not. One that an output
        limit cut short is left out.

        Raises ``UpstreamFailed`` for a call that is torn although the answer claims to be whole.
        """
        found: list[Call] = []
        cut = finish_reason in _CUT_SHORT
        for growing in self._calls.values():
            if growing.sent or cut or growing.is_echo():
                continue
            if not growing.name or "".join(growing.arguments).strip():
                raise UpstreamFailed(
                    "The model called a tool with arguments that are not a JSON object.",
                    code="malformed_tool_call",
                )
            found.append(self._send(growing, "{}"))
        return found

    def _growing(self, call: ToolCallDelta) -> _Growing:
        """The call that a delta belongs to: at its index, the one that began last."""
        key = self._latest.get(call.index, call.index)
        found = self._calls.setdefault(key, _Growing())
        if begins(found.id, found.name, lambda: found.sent, call):
            key = -len(self._calls)
            self._latest[call.index] = key
            assert call.function is not None, "a name stands in it"
            doubtful = not call.id and call.function.name == found.name
            found = self._calls.setdefault(key, _Growing(doubtful=doubtful))
        return found

    def _grow(self, growing: _Growing, more: str) -> list[Call]:
        if growing.sent:
            # Some servers send a call without arguments twice: "{}{}".
            if more.strip() and more != "".join(growing.arguments):
                raise UpstreamFailed(
                    "The model's tool call went on after its end.", code="malformed_tool_call"
                )
            return []
        growing.arguments.append(more)
        closed = growing.balance.feed(more)
        if growing.broken or not closed or not more.rstrip().endswith("}"):
            return []
        text = growing.whole()
        return [] if text is None else [self._send(growing, text)]

    def _send(self, growing: _Growing, arguments: str) -> Call:
        growing.sent = True
        made = f"{self._call_ids}_{len(self._used_ids)}"
        usable = _USABLE_ID.fullmatch(growing.id) and growing.id not in self._used_ids
        name = growing.id if usable else made
        self._used_ids.add(name)
        return Call(name, growing.name, arguments, growing.extras)


class CallGate:
    """Holds the calls of an answer back until they are whole, for every choice.

    For answers of servers that send arguments in pieces, or torn; chunks without calls pass as they
    are, at the price of a look. A call is sent in one delta, under an index of its own. An answer
    with calls ends with ``tool_calls``, also where its server says "stop".

    forced: a function is named that must be called, which OpenAI too ends with "stop".
    """

    def __init__(self, call_ids: str, *, forced: bool = False):
        self._call_ids = call_ids
        self._forced = forced
        self._joiners: dict[int, CallJoiner] = {}
        self._sent: dict[int, int] = {}
        self._reasons: dict[int, str] = {}
        self._ended: set[int] = set()

    def chunk(self, chunk: ChatChunk) -> ChatChunk:
        """The chunk (changed in place) with the calls that it completes. Raises as ``whole``."""
        for choice in chunk.choices:
            if choice.finish_reason:
                # Some servers end an answer twice.
                choice.finish_reason = None if choice.index in self._ended else choice.finish_reason
                self._ended.add(choice.index)
            if choice.delta.tool_calls or (choice.finish_reason and choice.index in self._joiners):
                self._pass(choice)
        if any(_says_nothing(choice) for choice in chunk.choices):
            chunk.choices = [c for c in chunk.choices if not _says_nothing(c)]
        return chunk

    def end(self) -> None:
        """Call at the end. Raises as ``whole``: for pieces that came after their choice's end."""
        for index, joiner in self._joiners.items():
            if joiner.end(self._reasons.get(index)):
                raise UpstreamFailed(
                    "The backend sent a call after the end of its answer.",
                    code="malformed_tool_call",
                )

    def whole(self, response: ChatResponse) -> ChatResponse:
        """The answer (changed in place) with its whole calls.

        Raises ``UpstreamFailed`` for a call that is torn although its choice claims to be whole.
        """
        for choice in response.choices:
            calls = choice.message.tool_calls
            if calls is UNSET:
                continue
            kept = self._joiner(choice.index).whole(calls, choice.finish_reason)
            made = [ToolCall(FunctionCall(c.name, c.arguments), id=c.id, **c.extras) for c in kept]
            choice.message.tool_calls = made or UNSET
            if made and choice.finish_reason == "stop" and not self._forced:
                choice.finish_reason = "tool_calls"
        return response

    def _pass(self, choice: ChunkChoice) -> None:
        joiner = self._joiner(choice.index)
        found = [call for delta in choice.delta.tool_calls or () for call in joiner.read(delta)]
        if choice.finish_reason:
            self._reasons[choice.index] = choice.finish_reason
            found += joiner.end(choice.finish_reason)
        first = self._sent.get(choice.index, 0)
        self._sent[choice.index] = first + len(found)
        if choice.finish_reason == "stop" and first + len(found) and not self._forced:
            choice.finish_reason = "tool_calls"
        choice.delta.tool_calls = [
            ToolCallDelta(
                first + at,
                call.id,
                "function",
                FunctionCall(call.name, call.arguments),
                **call.extras,
            )
            for at, call in enumerate(found)
        ] or None

    def _joiner(self, index: int) -> CallJoiner:
        made = self._joiners.get(index)
        if made is None:
            prefix = f"{self._call_ids}_{index}" if index else self._call_ids
            made = self._joiners[index] = CallJoiner(prefix)
        return made


def _says_nothing(choice: ChunkChoice) -> bool:
    """Whether a choice holds nothing that its client would miss."""
    delta = choice.delta
    return not (
        choice.finish_reason
        or choice.logprobs
        or delta.role
        or delta.tool_calls
        or delta.reasoning_content
        or delta.refusal
        or (delta.content is not UNSET and delta.content)
    )


def is_object(text: str) -> bool:
    """Whether JSON text is an object that may be passed on: what is nested beyond the bound of a
    request could not be sent back to us."""
    if nested_too_deeply(text.encode("utf-8", "surrogatepass")):
        return False
    try:
        _OBJECT.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return False
    return True
