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
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import msgspec
from msgspec import UNSET

from agentspec.toolcall.readable import readable_tools
from agentspec.toolcall.repair import CallChecker
from agentspec.wire.chat import (
    AnswerMessage,
    ChatChunk,
    ChatResponse,
    Usage,
)
from agentspec.wire.errors import AgentspecError, InvalidRequest, UpstreamFailed
from agentspec.wire.surrogates import mended
from agentspec.wire.think import split

from .base import Backend, CallCounts, Turn
from .demands import ARGUMENTS, CALL, Demands, Wrong, feedback
from .foreign import nested
from .gate import Gate, Held, Said
from .spent import Spent

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
    spent = Spent()
    check = _Check(turn)
    for asked in _turns(backend, turn, check):
        with _told(spent):
            response = await backend.complete(asked)
        if response.usage is not None:
            response.usage = spent.add(response.usage)
        spent.close()
        for choice in response.choices:
            message = choice.message
            calls = () if message.tool_calls is UNSET else message.tool_calls
            said = Said([Held.of(call) for call in calls], refused=bool(message.refusal))
            said.text.append(check.demands.mended(split(message.content or "")[1]))
            kept = check.choice(said, choice.finish_reason)
            message.tool_calls = [call.whole() for call in kept] or UNSET
            if not said.calls and message.content:
                _mend(message, check.demands)
        if not check.wrong:
            check.settle()
            return response
    with _told(spent):
        raise check.failed(backend)


async def chat(backend: Backend, turn: Turn) -> AsyncGenerator[ChatChunk]:
    """``backend.chat``, checked. Raises as ``complete`` does."""
    _refuse(backend, turn)
    checked = needs_checking(backend, turn)
    try:
        run = _chat(backend, turn) if checked else _unchecked(backend, turn)
        async with aclosing(run) as chunks:
            async for chunk in chunks:
                yield chunk
    except RecursionError:
        raise nested() from None


@contextmanager
def _told(spent: Spent) -> Iterator[None]:
    """An error that comes out of the block takes along what was spent until then."""
    try:
        yield
    except AgentspecError as error:
        error.usage = error.usage or spent.total
        raise


async def _unchecked(backend: Backend, turn: Turn) -> AsyncGenerator[ChatChunk]:
    spent = Spent()
    with _told(spent):
        async with aclosing(backend.chat(turn)) as chunks:
            async for chunk in chunks:
                if isinstance(chunk.usage, Usage):
                    spent.add(chunk.usage)
                yield chunk


async def _chat(backend: Backend, turn: Turn) -> AsyncGenerator[ChatChunk]:
    spent = Spent()
    check = _Check(turn)
    sent = False
    for asked in _turns(backend, turn, check):
        gate = Gate(check)
        with _told(spent):
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
    with _told(spent):
        raise check.failed(backend)


def _mend(message: AnswerMessage, demands: Demands) -> None:
    """Bring an answer into the form that was asked for, where it holds nothing else."""
    reasoning, text = split(message.content or "")
    mended_text = demands.mended(text)
    if mended_text == text:
        return
    message.content = mended_text
    if reasoning and message.reasoning_content is UNSET:
        message.reasoning_content = reasoning


def _turns(backend: Backend, turn: Turn, check: _Check) -> Iterator[Turn]:
    """The turn, and as often as it may be asked again the turn with the errors fed back."""
    assert isinstance(backend, Unconstrained)
    yield turn
    for _ in range(backend.call_retries or 0):
        turn = check.again(turn)
        yield turn


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

    def choice(self, said: Said, finish_reason: str | None) -> list[Held]:
        """The calls that go on, mended where they were; notes what is wrong."""
        kept: list[Held] = []
        cut = finish_reason in _CUT
        if self.demands.one and len(said.calls) > 1:
            # vLLM cuts to the first call itself.
            self.counts.dropped += len(said.calls) - 1
            said.calls = said.calls[:1]
        for call in said.calls:
            checked = self.checker.check(call.name, mended(call.text))
            if checked.wrong is None:
                self.counts.valid += 1
                self.counts.repaired += checked.repaired
                kept.append(Held(call.id, call.name, checked.text, extras=call.extras))
            elif cut:
                self.counts.dropped += 1
            else:
                shown = call.text[:_SHOWN_CHARS]
                mend = ARGUMENTS if call.name in self.demands.names else self.demands.allowed
                self.wrong.append(Wrong(CALL, f"{call.name}({shown}): {checked.wrong}", mend))
        if self.wrong:
            return kept
        if kept or not (cut or said.refused):
            self.wrong += self.demands.of_calls([call.name for call in kept])
        if not (said.calls or cut or said.refused):
            self.wrong += self.demands.of_text("".join(said.text))
        return kept

    def again(self, turn: Turn) -> Turn:
        """The turn for another attempt: what was wrong is told in one more message."""
        told = feedback(self.wrong)
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
