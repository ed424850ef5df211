"""Tool calls of backends that do not constrain them: checked, mended or asked for again.

Text and reasoning pass as they come. Calls are held back until their choice has ended; then each is
checked against its tool's schema and goes on as it is, or mended where that is beyond doubt. Where
one is wrong, the backend is asked again with the error fed back, as long as nothing has reached the
client; after that, or when it was asked often enough, the answer is an error. A call that an output
limit cut is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import msgspec
from msgspec import UNSET

from agentspec.toolcall.repair import CallChecker
from agentspec.wire.chat import (
    ChatChunk,
    ChatResponse,
    ChunkChoice,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from agentspec.wire.errors import UpstreamFailed

from .base import Backend, CallCounts, Turn

_CUT = ("length", "content_filter")
_MESSAGES = msgspec.json.Decoder(list[msgspec.Raw])
_SHOWN_CHARS = 1000


@runtime_checkable
class Unconstrained(Protocol):
    """A backend whose calls may be wrong.

    call_retries: how often it is asked again for a wrong one; None: its calls need no check.
    native_paths: of the requests that it answers in the client's own protocol, byte for byte.
    """

    call_retries: int | None
    native_paths: frozenset[str]


def needs_checking(backend: Backend, turn: Turn) -> bool:
    """Whether the backend's calls in this turn are to be checked: not where this very backend
    passes them on byte for byte (most surfaces bring a native request, few backends take it)."""
    if not isinstance(backend, Unconstrained) or backend.call_retries is None:
        return False
    passed = turn.native is not None and turn.native.path in backend.native_paths
    return bool(turn.request.tools) and not passed


async def complete(backend: Backend, turn: Turn) -> ChatResponse:
    """``backend.complete`` with checked calls. Raises ``UpstreamFailed`` where they stay wrong."""
    if not needs_checking(backend, turn):
        return await backend.complete(turn)
    spent = _Spent()
    check = _Check(turn)
    for asked in _turns(backend, turn, check):
        response = await backend.complete(asked)
        if response.usage is not None:
            response.usage = spent.add(response.usage)
        spent.close()
        for choice in response.choices:
            calls = choice.message.tool_calls
            if calls is not UNSET:
                found = [_Held.of(call) for call in calls]
                kept = check.choice(found, choice.finish_reason)
                choice.message.tool_calls = [call.whole() for call in kept] or UNSET
        if not check.wrong:
            check.settle()
            return response
    raise check.failed(backend)


async def chat(backend: Backend, turn: Turn) -> AsyncGenerator[ChatChunk]:
    """``backend.chat`` with checked calls. Raises ``UpstreamFailed`` where they stay wrong."""
    if not needs_checking(backend, turn):
        async with aclosing(backend.chat(turn)) as chunks:
            async for chunk in chunks:
                yield chunk
        return
    spent = _Spent()
    check = _Check(turn)
    sent = False
    for asked in _turns(backend, turn, check):
        gate = _Gate(check)
        async with aclosing(backend.chat(asked)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk.usage, Usage):
                    chunk.usage = spent.add(chunk.usage)
                for passed in gate.take(chunk, sent):
                    sent = sent or bool(passed.choices)
                    yield passed
        spent.close()
        if not check.wrong:
            check.settle()
            return
        if sent:
            break
    raise check.failed(backend)


def _turns(backend: Backend, turn: Turn, check: _Check) -> Iterator[Turn]:
    """The turn, and as often as it may be asked again the turn with the errors fed back."""
    assert isinstance(backend, Unconstrained)
    yield turn
    for _ in range(backend.call_retries or 0):
        turn = check.again(turn)
        yield turn


@dataclass(slots=True)
class _Held:
    """A call while its pieces come."""

    id: str | None
    name: str
    text: str

    @classmethod
    def of(cls, call: ToolCall) -> _Held:
        return cls(call.id, call.function.name or "", call.function.arguments or "")

    def whole(self) -> ToolCall:
        return ToolCall(FunctionCall(self.name, self.text), id=self.id)


@dataclass(slots=True)
class _Check:
    """The check of one turn's calls. wrong: what is wrong with those of the last attempt."""

    turn: Turn
    wrong: list[str] = field(default_factory=list)
    counts: CallCounts = field(default_factory=CallCounts)
    checker: CallChecker = field(init=False)

    def __post_init__(self) -> None:
        self.checker = CallChecker(self.turn.request.tools or [])

    def choice(self, calls: list[_Held], finish_reason: str | None) -> list[_Held]:
        """The calls that go on, mended where they were; notes those that cannot."""
        kept: list[_Held] = []
        for call in calls:
            checked = self.checker.check(call.name, call.text)
            if checked.wrong is None:
                self.counts.valid += 1
                self.counts.repaired += checked.repaired
                kept.append(_Held(call.id, call.name, checked.text))
            elif finish_reason in _CUT:
                self.counts.dropped += 1
            else:
                said = call.text[:_SHOWN_CHARS]
                self.wrong.append(f"{call.name}({said}): {checked.wrong}")
        return kept

    def again(self, turn: Turn) -> Turn:
        """The turn for another attempt: what was wrong is told in one more message."""
        told = (
            "Your last answer called tools in a wrong way, so none of its calls was made.\n"
            + "\n".join(self.wrong)
            + "\nCall again, with arguments that satisfy the tools' schemas."
        )
        self.wrong.clear()
        self.counts = CallCounts(retried=self.counts.retried + 1)
        messages = _MESSAGES.decode(turn.body["messages"])
        messages.append(msgspec.Raw(msgspec.json.encode({"role": "user", "content": told})))
        body = turn.body | {"messages": msgspec.Raw(msgspec.json.encode(messages))}
        return replace(turn, body=body)

    def settle(self) -> None:
        """What happened goes into the turn's counts."""
        total, own = self.turn.calls, self.counts
        total.checked = True
        total.valid, total.repaired = own.valid, own.repaired
        total.dropped, total.retried = own.dropped, own.retried

    def failed(self, backend: Backend) -> UpstreamFailed:
        self.counts.dropped += len(self.wrong)
        self.settle()
        return UpstreamFailed(
            f"Backend '{backend.name}' called a tool in a wrong way: {self.wrong[0]}",
            code="invalid_tool_call",
        )


class _Gate:
    """Holds the calls of one stream back."""

    def __init__(self, check: _Check):
        self._check = check
        self._held: dict[int, list[tuple[int, _Held]]] = {}
        self._opening: list[ChatChunk] = []

    def take(self, chunk: ChatChunk, sent: bool) -> list[ChatChunk]:
        """What may go on of a chunk. sent: the client has got something already."""
        for choice in chunk.choices:
            for delta in choice.delta.tool_calls or ():
                self._piece(self._held.setdefault(choice.index, []), delta)
            choice.delta.tool_calls = None
        chunk.choices = [passed for choice in chunk.choices for passed in self._passed(choice)]
        if self._check.wrong:
            chunk.choices = []
        opens = [c for c in chunk.choices if not c.finish_reason and not _says(c.delta)]
        if len(opens) == len(chunk.choices) and chunk.choices and chunk.usage is UNSET:
            # An opening that says nothing: it waits, so that the backend can be asked again.
            self._opening += [] if sent else [chunk]
            return []
        if not chunk.choices:
            return [chunk] if chunk.usage is not UNSET and not self._check.wrong else []
        held, self._opening = self._opening, []
        return [*held, chunk]

    def _piece(self, calls: list[tuple[int, _Held]], delta: ToolCallDelta) -> None:
        """Some servers give every call the same index, and another id."""
        found = next((c for i, c in reversed(calls) if i == delta.index), None)
        if found is None or (delta.id and found.id and delta.id != found.id):
            found = _Held(None, "", "")
            calls.append((delta.index, found))
        found.id = found.id or delta.id
        if delta.function is not None:
            found.name = found.name or delta.function.name or ""
            more = delta.function.arguments or ""
            # Some send a call without arguments twice: "{}{}".
            found.text += "" if more == found.text == "{}" else more

    def _passed(self, choice: ChunkChoice) -> list[ChunkChoice]:
        """The choice of a chunk, at its end behind its calls."""
        if choice.finish_reason is None:
            return [choice]
        calls = [call for _, call in self._held.pop(choice.index, [])]
        kept = self._check.choice(calls, choice.finish_reason)
        if kept:
            choice.delta.tool_calls = [
                ToolCallDelta(i, call.id, "function", FunctionCall(call.name, call.text))
                for i, call in enumerate(kept)
            ]
        return [choice]


def _says(delta: Delta) -> bool:
    return bool(delta.content or delta.reasoning_content or delta.refusal or delta.tool_calls)


class _Spent:
    """Tokens over all attempts: each was paid for."""

    def __init__(self) -> None:
        self._before: Usage | None = None
        self._now: Usage | None = None

    def add(self, usage: Usage) -> Usage:
        """The usage of this attempt so far, those before it included."""
        self._now = usage if self._before is None else _sum(self._before, usage)
        return self._now

    def close(self) -> None:
        """This attempt has ended."""
        self._before = self._now


def _sum(one: Usage, other: Usage) -> Usage:
    total = msgspec.convert(msgspec.to_builtins(other), Usage)
    _add(total, one)
    return total


def _add(total: msgspec.Struct, more: msgspec.Struct) -> None:
    for name in total.__struct_fields__:
        ours, theirs = getattr(total, name), getattr(more, name)
        if isinstance(ours, int) and isinstance(theirs, int):
            setattr(total, name, ours + theirs)
        elif isinstance(ours, msgspec.Struct) and isinstance(theirs, msgspec.Struct):
            _add(ours, theirs)
        elif ours is None and theirs is not None:
            setattr(total, name, theirs)
