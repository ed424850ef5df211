"""Answers of backends that don't keep to what is asked by themselves: checked, mended or asked for
again.

Text and reasoning pass as they come. Calls are held back until the answer has ended; then each is
checked against its tool's schema and goes on as it is, or mended where that is beyond doubt, and
the answer as a whole is held to the request (``demands.py``). Where something is wrong, the backend
is asked again with the error fed back, as long as nothing has reached the client; after that, or
when it was asked often enough, the answer is an error. A call that an output limit cut is left out.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import msgspec
from msgspec import UNSET

from agentspec.toolcall.readable import readable_tools
from agentspec.toolcall.repair import CallChecker
from agentspec.wire.calls import begins, is_object
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
from agentspec.wire.errors import InvalidRequest, UpstreamFailed
from agentspec.wire.surrogates import mended

from .base import Backend, CallCounts, Turn
from .demands import CALL, Demands, Wrong
from .foreign import nested

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
    """Whether the backend's answer to this turn is to be checked: not where this very backend
    passes it on byte for byte (most surfaces bring a native request, few backends take it)."""
    if not isinstance(backend, Unconstrained) or backend.call_retries is None:
        return False
    return not passes(backend, turn)


def passes(backend: Backend, turn: Turn) -> bool:
    """Whether the backend gets the client's own request and passes its own answer on."""
    paths = backend.native_paths if isinstance(backend, Unconstrained) else ()
    return turn.native is not None and turn.native.path in paths


def _refuse(backend: Backend, turn: Turn) -> None:
    """Raise where this backend can't do what is asked, and others could."""
    if turn.native is not None and turn.native.otherwise and not passes(backend, turn):
        raise turn.native.otherwise
    wished = turn.request.agentspec
    if wished is not None and wished.grammar is not None and backend.kind != "engine":
        raise InvalidRequest(
            f"Invalid value for 'agentspec.grammar': backend '{backend.name}' cannot hold an answer"
            " to a grammar; our own engine can.",
            param="agentspec.grammar",
            code="unsupported_parameter",
        )


async def complete(backend: Backend, turn: Turn) -> ChatResponse:
    """``backend.complete``, checked. Raises ``UpstreamFailed`` where it stays wrong,
    ``InvalidRequest`` where the backend can't do what is asked."""
    _refuse(backend, turn)
    try:
        if not needs_checking(backend, turn):
            return await backend.complete(turn)
        return await _complete(backend, turn)
    except RecursionError:
        raise nested() from None


async def _complete(backend: Backend, turn: Turn) -> ChatResponse:
    spent = _Spent()
    check = _Check(turn)
    for asked in _turns(backend, turn, check):
        response = await backend.complete(asked)
        if response.usage is not None:
            response.usage = spent.add(response.usage)
        spent.close()
        for choice in response.choices:
            message = choice.message
            calls = () if message.tool_calls is UNSET else message.tool_calls
            said = _Said([_Held.of(call) for call in calls], refused=bool(message.refusal))
            said.text.append(message.content or "")
            kept = check.choice(said, choice.finish_reason)
            message.tool_calls = [call.whole() for call in kept] or UNSET
        if not check.wrong:
            check.settle()
            return response
    raise check.failed(backend)


async def chat(backend: Backend, turn: Turn) -> AsyncGenerator[ChatChunk]:
    """``backend.chat``, checked. Raises as ``complete`` does."""
    _refuse(backend, turn)
    checked = needs_checking(backend, turn)
    try:
        run = _chat(backend, turn) if checked else backend.chat(turn)
        async with aclosing(run) as chunks:
            async for chunk in chunks:
                yield chunk
    except RecursionError:
        raise nested() from None


async def _chat(backend: Backend, turn: Turn) -> AsyncGenerator[ChatChunk]:
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
                    sent = True
                    yield passed
        spent.close()
        for passed in gate.end():
            yield passed
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
    doubtful: bool = False
    """It began with the name of the call before alone: without more, it only repeats it."""

    @classmethod
    def of(cls, call: ToolCall) -> _Held:
        return cls(call.id, call.function.name or "", call.function.arguments or "")

    def is_whole(self) -> bool:
        return self.text.rstrip().endswith("}") and is_object(mended(self.text))

    def whole(self) -> ToolCall:
        return ToolCall(FunctionCall(self.name, self.text), id=self.id)


@dataclass(slots=True)
class _Said:
    """What one choice has said so far."""

    calls: list[_Held] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    refused: bool = False


@dataclass(slots=True)
class _Check:
    """The check of one turn's answer. wrong: what is wrong with the last attempt."""

    turn: Turn
    wrong: list[Wrong] = field(default_factory=list)
    counts: CallCounts = field(default_factory=CallCounts)
    checker: CallChecker = field(init=False)
    demands: Demands = field(init=False)

    def __post_init__(self) -> None:
        self.checker = CallChecker(readable_tools(self.turn.request.tools or []))
        self.demands = Demands.of(self.turn.request)

    def choice(self, said: _Said, finish_reason: str | None) -> list[_Held]:
        """The calls that go on, mended where they were; notes what is wrong."""
        kept: list[_Held] = []
        cut = finish_reason in _CUT
        for call in said.calls:
            checked = self.checker.check(call.name, mended(call.text))
            if checked.wrong is None:
                self.counts.valid += 1
                self.counts.repaired += checked.repaired
                kept.append(_Held(call.id, call.name, checked.text))
            elif cut:
                self.counts.dropped += 1
            else:
                shown = call.text[:_SHOWN_CHARS]
                self.wrong.append(Wrong(CALL, f"{call.name}({shown}): {checked.wrong}"))
        if self.wrong:
            return kept
        if kept or not (cut or said.refused):
            self.wrong += self.demands.of_calls([call.name for call in kept])
        if not (said.calls or cut or said.refused):
            self.wrong += self.demands.of_text("".join(said.text))
        return kept

    def again(self, turn: Turn) -> Turn:
        """The turn for another attempt: what was wrong is told in one more message."""
        calls = any(wrong.code == CALL for wrong in self.wrong)
        told = (
            "Your last answer called tools in a wrong way, so none of its calls was made.\n"
            if calls
            else "Your last answer does not have the form that was asked for.\n"
        )
        told += "\n".join(wrong.text for wrong in self.wrong)
        told += (
            "\nCall again, with arguments that satisfy the tools' schemas."
            if calls
            else "\nAnswer again, in that form and with nothing around it."
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
        total.checked = bool(self.turn.request.tools)
        total.valid, total.repaired = own.valid, own.repaired
        total.dropped, total.retried = own.dropped, own.retried

    def failed(self, backend: Backend) -> UpstreamFailed:
        wrong = self.wrong[0]
        self.counts.dropped += sum(one.code == CALL for one in self.wrong)
        self.settle()
        did = "called a tool in a wrong way" if wrong.code == CALL else "gave a wrong answer"
        return UpstreamFailed(f"Backend '{backend.name}' {did}: {wrong.text}", code=wrong.code)


class _Gate:
    """Holds the calls of one stream back, and its end: some servers send a call behind it."""

    def __init__(self, check: _Check):
        self._check = check
        self._said: dict[int, _Said] = {}
        self._held: dict[int, list[tuple[int, _Held]]] = {}
        self._opening: list[ChatChunk] = []
        self._ends: dict[int, ChunkChoice] = {}
        self._last: ChatChunk | None = None

    def take(self, chunk: ChatChunk, sent: bool) -> list[ChatChunk]:
        """What may go on of a chunk. sent: the client has got something already."""
        for choice in chunk.choices:
            self._read(choice)
        if any(_says(choice) for choice in chunk.choices):
            held, self._opening = self._opening, []
            self._last = msgspec.structs.replace(chunk, choices=[], usage=UNSET, agentspec=UNSET)
            return [*held, chunk]
        if not (sent or self._opening or self._last) and chunk.choices and not self._ends:
            # An opening that says nothing: it waits, so that the backend can be asked again.
            self._opening = [chunk]
            return []
        if self._last is not None:
            chunk.usage = self._last.usage if chunk.usage is UNSET else chunk.usage
            chunk.agentspec = self._last.agentspec if chunk.agentspec is UNSET else chunk.agentspec
        self._last = chunk
        return []

    def end(self) -> list[ChatChunk]:
        """What remains to be sent at the end of the stream: nothing where it is wrong."""
        for index, choice in self._ends.items():
            said = self._said[index]
            held = self._held.pop(index, [])
            said.calls = [call for _, call in held if call.text.strip() or not call.doubtful]
            kept = self._check.choice(said, choice.finish_reason)
            choice.delta.tool_calls = [
                ToolCallDelta(i, call.id, "function", FunctionCall(call.name, call.text))
                for i, call in enumerate(kept)
            ] or None
        if self._check.wrong or self._last is None:
            return []
        self._last.choices = list(self._ends.values())
        return [*self._opening, self._last]

    def _read(self, choice: ChunkChoice) -> None:
        """Take what is to be checked out of a choice, and its end."""
        said = self._said.setdefault(choice.index, _Said())
        delta = choice.delta
        for call in delta.tool_calls or ():
            self._piece(self._held.setdefault(choice.index, []), call)
        delta.tool_calls = None
        if self._check.demands.answer is not None and isinstance(delta.content, str):
            said.text.append(delta.content)
        said.refused = said.refused or bool(delta.refusal)
        if choice.finish_reason is not None:
            end = ChunkChoice(choice.index, Delta(), choice.finish_reason)
            end.stop_reason, choice.stop_reason = choice.stop_reason, UNSET
            self._ends.setdefault(choice.index, end)
            choice.finish_reason = None

    def _piece(self, calls: list[tuple[int, _Held]], delta: ToolCallDelta) -> None:
        found = next((c for i, c in reversed(calls) if i == delta.index), None)
        if found is None or begins(found.id, found.name, found.is_whole, delta):
            named = delta.function.name if delta.function is not None else None
            doubtful = found is not None and not delta.id and named == found.name
            found = _Held(None, "", "", doubtful)
            calls.append((delta.index, found))
        found.id = found.id or delta.id
        if delta.function is not None:
            found.name = found.name or delta.function.name or ""
            more = delta.function.arguments or ""
            # Some send a call without arguments twice: "{}{}".
            found.text += "" if more == found.text == "{}" else more


def _says(choice: ChunkChoice) -> bool:
    delta = choice.delta
    return bool(delta.content or delta.reasoning_content or delta.refusal or choice.logprobs)


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
