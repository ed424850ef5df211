"""JSON as it is written, judged wherever a value ends: the incremental check behind the mask.

A ``Reader`` state is a value: it is never changed, so that a session goes back by forgetting the
newest. Whole members and items are kept as Python values; ``broken`` is for good.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import Any

from .definite import Definite, Nodes, canonical

_SPACE = b" \t\r\n"
_ENDS = b",]} \t\r\n"


@dataclass(frozen=True, slots=True)
class Frame:
    """An open object or array. pairs: its members so far, newest first, as a linked list.

    key: of the member whose value comes now. seen: keys, or items spelled canonically.
    """

    is_object: bool
    nodes: Nodes
    outer: Frame | None
    pairs: tuple[Any, Any] | None = None
    count: int = 0
    key: str | None = None
    seen: frozenset[str] = frozenset()

    def value(self) -> Any:
        """The container as it stands."""
        items, link = [], self.pairs
        while link is not None:
            items.append(link[0])
            link = link[1]
        items.reverse()
        return dict(items) if self.is_object else items


@dataclass(frozen=True, slots=True)
class Reader:
    """The state after some text.

    mode: "value" (one is to begin), "key", "string", "escape", "scalar", "after" (one has ended) or
    "done". chunks: the open string's or scalar's text, newest first, as a linked list.
    """

    definite: Definite
    frame: Frame | None = None
    mode: str = "value"
    in_key: bool = False
    chunks: tuple[bytes, Any] | None = None
    broken: bool = False
    ended: int = 0
    """How many values have ended: a border was crossed where this has grown."""

    def fed(self, text: bytes) -> tuple[Reader, int]:
        """(the state after ``text``, how much of it belongs to the value)."""
        state, pos = self, 0
        while pos < len(text) and state.mode != "done" and not state.broken:
            state, pos = state._step(text, pos)
        return state, pos

    def finished(self) -> Reader:
        """The text ends here: a number that stood open has ended."""
        return self._scalar_ended() if self.mode == "scalar" and self.frame is None else self

    @property
    def in_string(self) -> bool:
        return self.mode in ("string", "escape")

    @property
    def in_free_string(self) -> bool:
        """Whether a string stands open of which nothing is asked that masks do not hold."""
        if not self.in_string:
            return False
        if self.in_key:
            return self.frame is not None and self.definite.silent_on_keys(self.frame.nodes)
        return self.definite.silent(self.nodes())

    def nodes(self) -> Nodes:
        """What judges the value that is being read or comes next."""
        frame = self.frame
        if frame is None:
            return self.definite.root
        if frame.is_object:
            return () if frame.key is None else self.definite.member(frame.nodes, frame.key)
        return self.definite.item(frame.nodes, frame.count)

    def _step(self, text: bytes, pos: int) -> tuple[Reader, int]:
        if self.in_string:
            return self._string(text, pos)
        if self.mode == "scalar":
            return self._scalar(text, pos)
        byte = text[pos]
        if byte in _SPACE:
            return self, pos + 1
        if self.mode == "after":
            return self._after(byte), pos + 1
        if byte in b"]}":  # an empty container
            return self._closed(), pos + 1
        if self.mode == "value" and self.definite.refuses_start(self.nodes(), byte):
            return replace(self, broken=True), pos + 1
        if byte == 0x22:
            opened = replace(self, mode="string", in_key=self.mode == "key", chunks=(b'"', None))
            return opened, pos + 1
        if byte in b"{[":
            inner = Frame(byte == 0x7B, self.nodes(), self.frame)
            mode = "key" if byte == 0x7B else "value"
            return replace(self, frame=inner, mode=mode), pos + 1
        return replace(self, mode="scalar", chunks=None), pos

    def _string(self, text: bytes, pos: int) -> tuple[Reader, int]:
        if self.mode == "escape":
            held = text[pos : pos + 1]
            return replace(self, mode="string", chunks=(held, self.chunks)), pos + 1
        quote, slash = text.find(b'"', pos), text.find(b"\\", pos)
        stops = [place for place in (quote, slash) if place >= 0]
        if not stops:
            return replace(self, chunks=(text[pos:], self.chunks)), len(text)
        stop = min(stops) + 1
        chunks = (text[pos:stop], self.chunks)
        if stop - 1 == slash:
            return replace(self, mode="escape", chunks=chunks), stop
        closed = replace(self, chunks=chunks)
        return (closed._key_ended() if self.in_key else closed._scalar_ended()), stop

    def _scalar(self, text: bytes, pos: int) -> tuple[Reader, int]:
        end = pos
        while end < len(text) and text[end] not in _ENDS:
            end += 1
        held = replace(self, chunks=(text[pos:end], self.chunks))
        return (held._scalar_ended() if end < len(text) else held), end

    def _text(self) -> Any:
        parts, link = [], self.chunks
        while link is not None:
            parts.append(link[0])
            link = link[1]
        try:
            return json.loads(b"".join(reversed(parts)))
        except ValueError:
            return None

    def _key_ended(self) -> Reader:
        key, frame = str(self._text()), self.frame
        assert frame is not None
        twice = key in frame.seen
        inner = replace(frame, key=key, seen=frame.seen | {key})
        broken = twice or self.definite.refuses_key(frame.nodes, key)
        return replace(
            self, frame=inner, mode="after", in_key=False, chunks=None, broken=broken,
            ended=self.ended + 1,
        )  # fmt: skip

    def _scalar_ended(self) -> Reader:
        value, nodes = self._text(), self.nodes()
        return replace(self, chunks=None)._ended(value, nodes)

    def _after(self, byte: int) -> Reader:
        frame = self.frame
        if byte == 0x3A:
            return replace(self, mode="value")
        if byte == 0x2C:
            assert frame is not None
            return replace(self, mode="key" if frame.is_object else "value")
        return self._closed()

    def _closed(self) -> Reader:
        frame = self.frame
        assert frame is not None
        outer = replace(self, frame=frame.outer)
        return outer._ended(frame.value(), frame.nodes)

    def _ended(self, value: Any, nodes: Nodes) -> Reader:
        """A value has ended, whose place ``self`` is at; ``nodes`` judge it."""
        broken, frame = self.definite.refuses(nodes, value), self.frame
        if frame is None:
            return replace(self, mode="done", broken=broken, ended=self.ended + 1)
        held, seen = value, frame.seen
        if frame.is_object:
            held = (frame.key, value)
        elif self.definite.unique(frame.nodes):
            spelled = canonical(value)
            broken = broken or spelled in seen
            seen = seen | {spelled}
        inner = replace(
            frame, pairs=(held, frame.pairs), count=frame.count + 1, key=None, seen=seen
        )
        return replace(self, frame=inner, mode="after", broken=broken, ended=self.ended + 1)
