"""What reading an answer finds, in the order in which it becomes sure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """What the model thinks before it answers; no part of the answer's text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call's name is known. Its arguments may still turn out torn."""

    index: int
    name: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is whole. ``arguments_text`` is JSON: where the model wrote JSON, as it wrote it."""

    index: int
    name: str
    arguments_text: str


@dataclass(frozen=True, slots=True)
class CallDropped:
    """A call that ended torn or malformed; it must not be passed on. ``name`` where known."""

    index: int
    name: str | None
    reason: str


Event = TextDelta | ReasoningDelta | CallStart | CallEnd | CallDropped


class Sink:
    """Collects events. ``index`` counts the answer's calls; a call dropped keeps its index."""

    def __init__(self) -> None:
        self._events: list[Event] = []
        self._index = 0
        self._name: str | None = None
        self._trims = False
        self.texted = False
        """Whether there was any text beside white space."""

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def trim(self) -> None:
        """White space that comes next is no text."""
        self._trims = True

    def text(self, text: str) -> None:
        if self._trims:
            text = text.lstrip()
        if text:
            self._trims = False
            self.texted = self.texted or not text.isspace()
            self._events.append(TextDelta(text))

    def reasoning(self, text: str) -> None:
        if text:
            self._events.append(ReasoningDelta(text))

    def start(self, name: str) -> None:
        self._trims = False
        self._name = name
        self._events.append(CallStart(self._index, name))

    def end(self, arguments_text: str) -> None:
        assert self._name is not None
        self._events.append(CallEnd(self._index, self._name, arguments_text))
        self._index += 1
        self._name = None

    def drop(self, reason: str) -> None:
        self._events.append(CallDropped(self._index, self._name, reason))
        self._index += 1
        self._name = None
