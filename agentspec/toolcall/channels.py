"""Answers made of messages that name a channel and perhaps a recipient (gpt-oss).

A message: header, marker, body, end. A body for a function is its arguments; one of a reasoning
channel is reasoning; any other is text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .arguments import json_object
from .cursor import Cursor, Reading, Torn
from .events import Sink
from .format import ToolFormat
from .lexer import decoded

_WORD = re.compile(r"\s*(\w+)")
_NAMED = re.compile(r"\s*([\w.\-]+)")


class ChannelsReader:
    """Reads a whole answer; text outside of any message is text."""

    def __init__(
        self,
        fmt: ToolFormat,
        tools: Mapping[str, Any] | None,
        cursor: Cursor,
        sink: Sink,
        *,
        calls: bool = True,
    ):
        assert fmt.channels is not None
        self._marks, self._cursor, self._sink = fmt.channels, cursor, sink

    def read(self, in_reasoning: bool) -> Reading[None]:
        marks, cursor = self._marks, self._cursor
        if in_reasoning:
            yield from self._body(reasoning=True)
        yield from self._recipient_first()
        while True:
            piece, marker = cursor.up_to(marks.start, marks.channel, *marks.ends)
            self._sink.text(piece)
            if marker in (marks.start, marks.channel):
                yield from self._message(marker if marker == marks.channel else "")
            elif marker is None:
                if cursor.ended:
                    return
                yield

    def _recipient_first(self) -> Reading[None]:
        """The prompt ends with the start of a message: its recipient may come first."""
        cursor = self._cursor
        cursor.mark = cursor.pos
        yield from cursor.space()
        recipient = yield from cursor.take(self._marks.recipient)
        if recipient is None:
            return cursor.back()
        cursor.mark = None
        yield from self._message(recipient)

    def _message(self, header: str) -> Reading[None]:
        """A message, of whose header the beginning has been read."""
        marks, cursor = self._marks, self._cursor
        while True:
            piece, marker = cursor.up_to(marks.message, marks.start)
            header += piece
            if marker is not None:
                break
            if cursor.ended:
                if marks.recipient in header:
                    raise Torn
                return
            yield
        if marker == marks.start:
            cursor.pos -= len(marker)
            return
        addressed = marks.recipient.partition("=")
        if addressed[0] + "=" in header:
            name = _NAMED.match(header.partition(marks.recipient)[2])
            yield from self._function(name.group(1) if name else "")
        else:
            channel = _WORD.match(header.partition(marks.channel)[2])
            thinks = channel is not None and channel.group(1) in marks.reasoning
            yield from self._body(reasoning=thinks)

    def _body(self, *, reasoning: bool) -> Reading[None]:
        marks, cursor, sink = self._marks, self._cursor, self._sink
        if not reasoning and sink.texted:
            sink.text("\n")
        while True:
            piece, marker = cursor.up_to(*marks.ends, marks.start, marks.channel)
            (sink.reasoning if reasoning else sink.text)(piece)
            if marker is None:
                if cursor.ended:
                    return
                yield
                continue
            if marker not in marks.ends:
                cursor.pos -= len(marker)
            return

    def _function(self, name: str) -> Reading[None]:
        marks, cursor, sink = self._marks, self._cursor, self._sink
        if not name:
            sink.drop("no function is called")
            return (yield from self._skip())
        sink.start(name)
        yield from cursor.space()
        first = yield from cursor.peek()
        if not first:
            raise Torn
        if first != "{":
            sink.drop("arguments are not a JSON object")
            return (yield from self._skip())
        raw = yield from json_object(cursor)
        if isinstance(decoded(raw), dict):
            sink.end(raw)
        else:
            sink.drop("arguments are not a JSON object")
        yield from cursor.space()
        ended = yield from cursor.take(*marks.ends)
        if ended is None and cursor.ended and cursor.could_continue(marks.ends):
            cursor.pos = len(cursor.text)

    def _skip(self) -> Reading[None]:
        """Past a message that is no call."""
        try:
            yield from self._cursor.through(*self._marks.ends)
        except Torn:
            return
