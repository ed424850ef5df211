"""What of a stream is held back until it can be judged: calls, the end, JSON that isn't any yet."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from agentspec.wire.calls import begins, is_object
from agentspec.wire.chat import (
    ChatChunk,
    ChunkChoice,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
    call_extras,
)
from agentspec.wire.surrogates import mended

from .answer_form import JsonGate
from .demands import Demands, Wrong


@dataclass(slots=True)
class Held:
    """A call while its pieces come."""

    id: str | None
    name: str
    text: str
    doubtful: bool = False
    """It began with the name of the call before alone: without more, it only repeats it."""
    extras: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, call: ToolCall) -> Held:
        name, text = call.function.name or "", call.function.arguments or ""
        return cls(call.id, name, text, extras=call_extras(call))

    def is_whole(self) -> bool:
        return self.text.rstrip().endswith("}") and is_object(mended(self.text))

    def whole(self) -> ToolCall:
        return ToolCall(FunctionCall(self.name, self.text), id=self.id, **self.extras)


@dataclass(slots=True)
class Said:
    """What one choice has said so far."""

    calls: list[Held] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    refused: bool = False


class Judge(Protocol):
    """The check of one turn's answer. wrong: what is wrong with the last attempt."""

    wrong: list[Wrong]
    demands: Demands

    def choice(self, said: Said, finish_reason: str | None) -> list[Held]:
        """The calls that go on, mended where they were; notes what is wrong."""
        ...


class Gate:
    """Holds the calls of one stream back, and its end: some servers send a call behind it."""

    def __init__(self, check: Judge):
        self._check = check
        self._forms: dict[int, JsonGate] = {}
        self._said: dict[int, Said] = {}
        self._held: dict[int, list[tuple[int, Held]]] = {}
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
            rest = self._rest(index)
            if rest:
                choice.delta.content = rest
                said.text.append(rest)
            said.calls = [call for _, call in held if call.text.strip() or not call.doubtful]
            kept = self._check.choice(said, choice.finish_reason)
            choice.delta.tool_calls = [
                ToolCallDelta(
                    i, call.id, "function", FunctionCall(call.name, call.text), **call.extras
                )
                for i, call in enumerate(kept)
            ] or None
        if self._check.wrong or self._last is None:
            return []
        self._last.choices = list(self._ends.values())
        return [*self._opening, self._last]

    def _read(self, choice: ChunkChoice) -> None:
        """Take what is to be checked out of a choice, and its end."""
        said = self._said.setdefault(choice.index, Said())
        delta = choice.delta
        for call in delta.tool_calls or ():
            self._piece(self._held.setdefault(choice.index, []), call)
        delta.tool_calls = None
        if self._check.demands.answer is not None and isinstance(delta.content, str):
            self._form(choice, delta.content, said)
        said.refused = said.refused or bool(delta.refusal)
        if choice.finish_reason is not None:
            end = ChunkChoice(choice.index, Delta(), choice.finish_reason)
            end.stop_reason, choice.stop_reason = choice.stop_reason, UNSET
            known = self._ends.setdefault(choice.index, end)
            if known.finish_reason == "stop":
                # Some servers end an answer twice; the other reason says more.
                known.finish_reason = choice.finish_reason
            choice.finish_reason = None

    def _form(self, choice: ChunkChoice, content: str, said: Said) -> None:
        """Hold what is no JSON yet of an answer that must be, so that it can be mended, or asked
        for again. Reasoning in front of it passes."""
        form = self._forms.get(choice.index)
        if form is None:
            form = self._forms[choice.index] = self._check.demands.gate()
        reasoning, text = form.feed(content)
        if reasoning:
            choice.delta.reasoning_content = (choice.delta.reasoning_content or "") + reasoning
        choice.delta.content = text if text or not content else UNSET
        said.text.append(text)

    def _rest(self, index: int) -> str:
        form = self._forms.get(index)
        return "" if form is None else form.end()

    def _piece(self, calls: list[tuple[int, Held]], delta: ToolCallDelta) -> None:
        found = next((c for i, c in reversed(calls) if i == delta.index), None)
        if found is None or begins(found.id, found.name, found.is_whole, delta):
            named = delta.function.name if delta.function is not None else None
            doubtful = found is not None and not delta.id and named == found.name
            found = Held(None, "", "", doubtful)
            calls.append((delta.index, found))
        found.id = found.id or delta.id
        found.extras |= call_extras(delta)
        if delta.function is not None:
            found.name = found.name or delta.function.name or ""
            more = delta.function.arguments or ""
            # Some send a call without arguments twice: "{}{}".
            found.text += "" if more == found.text == "{}" else more


def _says(choice: ChunkChoice) -> bool:
    delta = choice.delta
    return bool(delta.content or delta.reasoning_content or delta.refusal or choice.logprobs)
