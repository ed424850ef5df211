"""Generated text to tool calls, as it streams. Total: any text gives text, calls, or drops.

One parser for every format: what differs stands in the format's folder. ``calls.py`` reads blocks
of calls, ``channels.py`` answers made of messages; both read through a ``Cursor``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from .calls import CallsReader
from .channels import ChannelsReader
from .cursor import Cursor, Torn
from .events import CallDropped, CallEnd, CallStart, Event, ReasoningDelta, Sink, TextDelta
from .format import ToolFormat
from .special import SpecialTokens

__all__ = [
    "CallDropped",
    "CallEnd",
    "CallStart",
    "Event",
    "Parser",
    "ReasoningDelta",
    "TextDelta",
]


class Parser:
    """Incremental: ``feed`` pieces in any cut, then ``finish``; events come once they are sure.

    Text that may be the beginning of a marker is held back; markers inside a call's strings are
    text of those strings. ``index`` counts the answer's calls, whatever the tool. A marker that no
    call follows is plain text. A call dropped keeps its index.

    tools: name -> schema of the parameters, which types arguments that come as bare text; None: not
    known. calls: whether there are calls at all; else their markup is text. in_reasoning: the
    prompt has opened the reasoning. special: spellings that are tokens of their own; a format's
    marker among them counts only where it comes as that token.
    """

    def __init__(
        self,
        fmt: ToolFormat,
        tools: Mapping[str, Any] | None = None,
        *,
        calls: bool = True,
        in_reasoning: bool = False,
        special: Collection[str] = (),
    ):
        self._special = SpecialTokens(fmt, special)
        self._cursor, self._sink = Cursor(), Sink()
        kind = ChannelsReader if fmt.form == "message" else CallsReader
        self._reader = kind(self._special.format, tools, self._cursor, self._sink, calls=calls)
        self._steps = self._reader.read(in_reasoning)
        self._over = False

    def feed(self, text: str, *, special: bool = False) -> list[Event]:
        """The events that ``text`` completes. special: ``text`` is one special token's spelling."""
        self._cursor.push(self._special.taken(text, special))
        return self._step()

    def finish(self) -> list[Event]:
        """The text has ended: what was held back is text, an open call is dropped."""
        self._cursor.ended = True
        events = self._step()
        assert self._over, "a reader that has all the text comes to its end"
        return events

    def _step(self) -> list[Event]:
        if not self._over:
            try:
                next(self._steps)
            except StopIteration:
                self._over = True
            except Torn:
                self._over = True
                self._sink.drop("torn")
        return [self._special.given(event) for event in self._sink.take()]
