"""The arguments of one call, in each encoding, as they are being written."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .cursor import Cursor, Reading, Torn
from .format import Tags, ToolFormat
from .lexer import ObjectScanner, decoded
from .spelling import Misspelled, read_keywords, read_value
from .typed import ArgumentTypes

_MAX_KEY = 256
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"', re.DOTALL)
_OPENERS, _CLOSERS = "([{", ")]}"


class Malformed(Exception):
    """The arguments are whole, but no arguments; the message says why."""


class ArgumentsReader:
    """Reads arguments up to their end; what they end with is taken where it encloses them."""

    def __init__(self, fmt: ToolFormat, tools: Mapping[str, Any] | None, cursor: Cursor):
        self._format, self._cursor = fmt, cursor
        self._tools = tools or {}
        self._types: dict[str, ArgumentTypes] = {}
        tail, close = fmt.tail_template.strip(), fmt.close.strip()
        self._outer = () if tail or not close else (close,)
        """Where a tagged call has no end of its own, the block's: it is left to be read again."""
        self._ends = (tail,) if tail else self._outer

    def begins(self) -> Reading[bool]:
        """Whether arguments stand here; only white space is skipped."""
        cursor, fmt = self._cursor, self._format
        if fmt.encoding == "python":
            return True
        yield from cursor.space()
        if fmt.tags is None:
            if not (yield from cursor.peek()):
                raise Torn
            return (yield from cursor.peek()) == "{"
        marker = yield from self._tag(fmt.tags)
        cursor.pos -= len(marker or "")
        return marker is not None

    def read(self, name: str) -> Reading[str]:
        """The arguments of a call of ``name`` as JSON text. Raises ``Malformed`` or ``Torn``."""
        fmt = self._format
        if fmt.encoding == "json":
            raw = yield from json_object(self._cursor)
            if not isinstance(decoded(raw), dict):
                raise Malformed("arguments are not a JSON object")
            return raw
        if fmt.tags is not None:
            return _dumped((yield from self._tagged(name, fmt.tags)))
        assert fmt.spelling is not None
        raw = yield from self._balanced(")" if fmt.encoding == "python" else "")
        try:
            if fmt.encoding == "python":
                return _dumped(read_keywords(raw, fmt.spelling))
            return _dumped(read_value(raw, fmt.spelling))
        except Misspelled as wrong:
            raise Malformed(f"arguments cannot be read: {wrong}") from None

    def _tag(self, tags: Tags) -> Reading[str | None]:
        """The next argument's opening, or what ends the arguments. Raises ``Torn`` at a cut."""
        cursor, options = self._cursor, (tags.open, *self._ends)
        marker = yield from cursor.take(*options)
        if marker is None and cursor.ended and cursor.could_continue(options):
            raise Torn
        return marker

    def _tagged(self, name: str, tags: Tags) -> Reading[dict[str, Any]]:
        cursor, found = self._cursor, {}
        if name not in self._types:
            self._types[name] = ArgumentTypes(self._tools.get(name))
        types = self._types[name]
        while True:
            yield from cursor.space()
            marker = yield from self._tag(tags)
            if marker is None:
                raise Malformed("an argument is not written as one")
            if marker != tags.open:
                cursor.pos -= len(marker) if marker in self._outer else 0
                return found
            key, _ = yield from cursor.through(tags.key_close)
            if not key or len(key) > _MAX_KEY or "\n" in key or "<" in key:
                raise Malformed("an argument has no proper name")
            is_string = yield from self._value_open(tags)
            is_json = is_string is False or (is_string is None and types.never_string(key))
            text = yield from self._value_text(tags, is_json)
            if key in found:
                raise Malformed(f"the argument '{key}' is given twice")
            found[key] = _value(types, key, text, is_string)

    def _value_open(self, tags: Tags) -> Reading[bool | None]:
        """What stands between a name and a value. Whether it says that the value is a string."""
        cursor = self._cursor
        kinds = (tags.string_open.strip(), tags.json_open.strip())
        options = kinds if tags.string_open else (tags.value_open.strip(),)
        if not options[0]:
            return None
        yield from cursor.space()
        opening = yield from cursor.take(*options)
        if opening is None:
            if cursor.ended and cursor.could_continue(options):
                raise Torn
            raise Malformed("an argument has no value")
        return opening == kinds[0] if tags.string_open else None

    def _value_text(self, tags: Tags, is_json: bool) -> Reading[str]:
        """A value up to the mark that ends it; inside a string of JSON it ends nothing."""
        text, marker = yield from self._cursor.through(tags.value_close.strip())
        while is_json and _STRING.sub("", text).count('"'):
            more, _ = yield from self._cursor.through(marker)
            text += marker + more
        if tags.value_open.endswith("\n"):
            text = text.removeprefix("\n")
        if tags.value_close.startswith("\n"):
            text = text.removesuffix("\n")
        return text

    def _balanced(self, closer: str) -> Reading[str]:
        """Text up to the bracket that closes it. closer: of a bracket already read, which is left
        out; "": the text begins with its own."""
        spelling, cursor = self._format.spelling, self._cursor
        assert spelling is not None
        quotes = tuple(spelling.quotes)
        pieces: list[str] = []
        closers: list[str] = [closer] if closer else []
        while True:
            piece, marker = yield from cursor.through(*quotes, *_OPENERS, *_CLOSERS)
            pieces.append(piece)
            if marker in quotes:
                pieces.append(marker + (yield from self._string(marker)))
                continue
            if marker in _OPENERS:
                closers.append(_CLOSERS[_OPENERS.index(marker)])
            elif marker != closers.pop():
                raise Malformed("arguments cannot be read: brackets do not match")
            if closers or not closer:
                pieces.append(marker)
            if not closers:
                return "".join(pieces)

    def _string(self, quote: str) -> Reading[str]:
        """The rest of a string, its closing quote included."""
        spelling, cursor = self._format.spelling, self._cursor
        assert spelling is not None
        pieces: list[str] = []
        while True:
            piece, marker = yield from cursor.through(quote, *(("\\",) if spelling.escapes else ()))
            pieces += (piece, marker)
            if marker == quote:
                return "".join(pieces)
            while cursor.pos == len(cursor.text):
                yield from cursor.more()
            pieces.append(cursor.text[cursor.pos])
            cursor.pos += 1


def json_object(cursor: Cursor) -> Reading[str]:
    """The text of the JSON object that begins here, not yet decoded. Raises ``Torn``."""
    scanner, pieces = ObjectScanner(), []
    while not scanner.done:
        if cursor.pos == len(cursor.text):
            yield from cursor.more()
        start = cursor.pos
        cursor.pos = scanner.feed(cursor.text, start)
        pieces.append(cursor.text[start : cursor.pos])
    return "".join(pieces)


def _value(types: ArgumentTypes, key: str, text: str, is_string: bool | None) -> Any:
    if is_string is None:
        return types.value(key, text)
    if is_string:
        return text
    value = decoded(text)
    if value is None and text.strip() != "null":
        raise Malformed(f"the argument '{key}' is not JSON")
    return value


def _dumped(arguments: dict[str, Any]) -> str:
    try:
        return json.dumps(arguments, ensure_ascii=False, allow_nan=False)
    except ValueError:
        raise Malformed("a number is too large") from None
