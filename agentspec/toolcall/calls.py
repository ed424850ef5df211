"""Blocks of calls inside an answer's text: where they begin, what stands between the calls."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from .arguments import ArgumentsReader, Malformed
from .cursor import Cursor, Reading, Torn
from .events import Sink
from .format import ToolFormat
from .lexer import ObjectScanner, decoded, member

_MAX_SPACE = 16
_MAX_NAME = 128
_MAX_ID = 32
_ALSO_ARGUMENTS = ("arguments", "parameters")
_ALSO_KEYS = ("type", "id")
_NAME = re.compile(r"[\w.\-]")


class CallsReader:
    """Reads a whole answer: text, reasoning, blocks of calls.

    ``read`` is a generator that waits for text and ends with it.
    """

    def __init__(
        self,
        fmt: ToolFormat,
        tools: Mapping[str, Any] | None,
        cursor: Cursor,
        sink: Sink,
        *,
        calls: bool = True,
    ):
        self._format, self._tools, self._cursor, self._sink = fmt, tools, cursor, sink
        self._arguments = ArgumentsReader(fmt, tools, cursor)
        opener = () if fmt.anchored else (fmt.open.strip(),)
        self._openers = (*opener, *fmt.also_open) if calls else ()
        self._anchored = fmt.anchored and calls
        self._closers = tuple(m for m in (fmt.close.strip(),) if m)
        before, _, after = fmt.head_template.partition("$name")
        self._before, self._after = before.strip(), after
        self._named = fmt.form == "named"
        self._inner = tuple(m for m in (fmt.list_close.strip(), ",", ";") if m)
        self._argument_keys = (fmt.arguments_key, *_ALSO_ARGUMENTS)
        self._known_keys = frozenset((fmt.name_key, *self._argument_keys, *_ALSO_KEYS))

    def read(self, in_reasoning: bool) -> Reading[None]:
        yield from self._beginning(in_reasoning)
        marks = self._format.reasoning
        thinks = (marks.open,) if marks is not None and marks.anywhere else ()
        while True:
            piece, marker = self._up_to((*self._openers, *thinks))
            self._sink.text(piece)
            if marker is None:
                if self._cursor.ended:
                    return
                yield
            elif marker in thinks:
                yield from self._reasoning()
            elif not (yield from self._block()):
                self._sink.text(marker)

    def _up_to(self, markers: tuple[str, ...]) -> tuple[str, str | None]:
        if markers:
            return self._cursor.up_to(*markers)
        piece = self._cursor.text[self._cursor.pos :]
        self._cursor.pos = len(self._cursor.text)
        return piece, None

    def _beginning(self, in_reasoning: bool) -> Reading[None]:
        """What may stand at an answer's beginning only."""
        marks, cursor = self._format.reasoning, self._cursor
        if in_reasoning and marks is not None:
            yield from self._reasoning()
        elif marks is not None:
            cursor.mark = cursor.pos
            yield from cursor.space()
            if (yield from cursor.take(marks.open)) is None:
                cursor.back()
            else:
                cursor.mark = None
                yield from self._reasoning()
        if self._anchored:
            yield from self._block()

    def _reasoning(self) -> Reading[None]:
        marks, cursor = self._format.reasoning, self._cursor
        assert marks is not None
        ends = (marks.close, *(self._openers if marks.ends_at_call else ()))
        while True:
            piece, marker = cursor.up_to(*ends)
            self._sink.reasoning(piece)
            if marker is None:
                if cursor.ended:
                    return
                yield
            elif marker == marks.close:
                return self._sink.trim()
            elif (yield from self._block()):
                return
            else:
                self._sink.reasoning(marker)

    def _block(self) -> Reading[bool]:
        """Read a block behind its opening marker. False: none is there, and nothing was read."""
        cursor = self._cursor
        cursor.mark = cursor.pos
        try:
            found = yield from self._first()
        except Torn:
            if not self._format.anchored or cursor.mark is None:
                raise
            found = False
        if not found:
            cursor.back()
            return False
        cursor.mark = None
        yield from self._rest()
        return True

    def _first(self) -> Reading[bool]:
        """What a block begins with: its list's bracket, or a call."""
        cursor, listed = self._cursor, self._format.list_open.strip()
        if self._format.anchored:
            listed = ""
            if self._named:
                listed_open = self._format.open.strip()
                if (yield from cursor.space()) >= 0 and not (yield from cursor.take(listed_open)):
                    return False
        if (yield from cursor.space(_MAX_SPACE + 1)) > _MAX_SPACE:
            return False
        if listed and (yield from cursor.take(listed)):
            cursor.mark = None
            yield from cursor.space()
            if not (yield from cursor.peek()):
                raise Torn
            return True
        return (yield from self._call())

    def _rest(self) -> Reading[None]:
        """The calls that follow, up to the block's end, or to what cannot belong to it."""
        cursor = self._cursor
        while True:
            yield from cursor.space()
            token = yield from cursor.take(*self._inner, *self._closers)
            if token in self._closers:
                return (yield from self._skip_also_close())
            if token is not None:
                continue
            if cursor.ended and cursor.could_continue((*self._inner, *self._closers)):
                cursor.pos = len(cursor.text)
                return
            cursor.mark = cursor.pos
            if not (yield from self._call()):
                return cursor.back()
            cursor.mark = None

    def _skip_also_close(self) -> Reading[None]:
        cursor, marks = self._cursor, self._format.also_close
        if marks:
            cursor.mark = cursor.pos
            yield from cursor.space()
            if (yield from cursor.take(*marks)) is None:
                return cursor.back()
            cursor.mark = None

    def _call(self) -> Reading[bool]:
        """Read one call. False: none begins here; what was looked at lies behind the mark."""
        if not self._named:
            return (yield from self._object())
        name = yield from self._head()
        if name is None:
            return False
        sure = not self._format.anchored or self._tools is not None
        if sure:
            self._cursor.mark = None
            self._sink.start(name)
        try:
            text = yield from self._arguments.read(name)
        except Malformed as wrong:
            if not sure:
                return False
            self._sink.drop(str(wrong))
            yield from self._resync()
            return True
        if not sure:
            self._sink.start(name)
        self._sink.end(text)
        yield from self._tail()
        return True

    def _head(self) -> Reading[str | None]:
        """A call's name, where all that belongs before its arguments is there."""
        cursor = self._cursor
        if self._before and not (yield from self._expect(self._before)):
            return None
        name = yield from cursor.run(_NAME, _MAX_NAME)
        if not name and not (yield from cursor.peek()):
            raise Torn
        if not name or not self._callable(name):
            return None
        if self._format.id_open and not (yield from self._skip_id()):
            return None
        for part in self._after.split("$index")[-1].split():
            yield from cursor.space(_MAX_SPACE)
            if not (yield from self._expect(part)):
                return None
        return name if (yield from self._arguments.begins()) else None

    def _callable(self, name: str) -> bool:
        """Without a marker, only a tool's own name makes a call."""
        return not self._format.anchored or self._tools is None or name in self._tools

    def _expect(self, text: str) -> Reading[bool]:
        """Take ``text``. Raises ``Torn`` where the end cuts it."""
        if (yield from self._cursor.take(text)):
            return True
        return (
            self._torn() if self._cursor.ended and self._cursor.could_continue((text,)) else False
        )

    def _torn(self) -> bool:
        raise Torn

    def _skip_id(self) -> Reading[bool]:
        """An id between the name and what comes before the arguments."""
        cursor, opening = self._cursor, self._format.id_open
        if not (yield from self._expect(opening)):
            return not self._format.id_needed
        return bool((yield from cursor.run(_NAME, _MAX_ID)))

    def _tail(self) -> Reading[None]:
        cursor, tail = self._cursor, self._format.tail_template.strip()
        if self._format.encoding not in ("json", "quoted") or not tail:
            return
        yield from cursor.space()
        taken = yield from cursor.take(tail)
        if taken is None and cursor.ended and cursor.could_continue((tail,)):
            cursor.pos = len(cursor.text)

    def _resync(self) -> Reading[None]:
        """Behind a malformed call: go on where it ends, or where the block does."""
        cursor, tail = self._cursor, self._format.tail_template.strip()
        markers = (*self._closers, *((tail,) if len(tail) > 1 else ()))
        if not markers:
            return
        try:
            _, marker = yield from cursor.through(*markers)
        except Torn:
            return
        if marker in self._closers:
            cursor.pos -= len(marker)

    def _object(self) -> Reading[bool]:
        """A JSON object that holds the name and the arguments."""
        cursor, scanner = self._cursor, ObjectScanner()
        first = yield from cursor.peek()
        if first != "{":
            return self._torn() if not first else False
        if not self._format.anchored:
            cursor.mark = None
        name, seen = None, 0
        while not scanner.done:
            if cursor.pos == len(cursor.text):
                yield from cursor.more()
            cursor.pos = scanner.feed(cursor.text, cursor.pos)
            if cursor.mark is not None:
                sure = self._is_call(scanner)
                if sure is False:
                    return False
                if sure is None:
                    continue
                cursor.mark = None
            if name is None and len(scanner.members) > seen:
                seen = len(scanner.members)
                name = self._name_in(scanner.members)
                if name is not None:
                    self._sink.start(name)
        self._end_object(name, scanner.members)
        return True

    def _is_call(self, scanner: ObjectScanner) -> bool | None:
        """Without a marker: whether an object is a call, by the order of its keys; None: not known
        yet. It is one once it names a tool and its arguments begin, without any other key."""
        name, begun = None, False
        keys = [*scanner.members, *([(scanner.key, "")] if scanner.key else [])]
        for raw_key, raw in keys:
            key = decoded(raw_key)
            if key not in self._known_keys:
                return False
            begun = begun or key in self._argument_keys
            if key == self._format.name_key and raw:
                name = self._name_in([(raw_key, raw)])
                if name is None or not self._callable(name):
                    return False
            if name is not None and begun:
                return True
        return False if scanner.done else None

    def _name_in(self, members: list[tuple[str, str]]) -> str | None:
        raw = member(members, self._format.name_key)
        name = None if raw is None else decoded(raw)
        return name if isinstance(name, str) and name else None

    def _end_object(self, name: str | None, members: list[tuple[str, str]]) -> None:
        if name is None:
            return self._sink.drop("no name")
        raw = next((r for k in self._argument_keys if (r := member(members, k)) is not None), None)
        arguments = {} if raw is None else decoded(raw)
        if isinstance(arguments, str):
            raw, arguments = arguments, decoded(arguments)
        if not isinstance(arguments, dict):
            return self._sink.drop("arguments are not a JSON object")
        self._sink.end("{}" if raw is None else raw)
