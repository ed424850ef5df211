"""Values in a spelling that is nearly JSON: Python's literals, or strings between special marks."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any

_MAX_DEPTH = 64
_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_WORD = re.compile(r"[^\W\d][\w.-]*")
_CONSTANTS = {"true": True, "false": False, "null": None, "True": True, "False": False}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "\n": ""}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}


class Misspelled(ValueError):
    """A text that is no value; the message says why."""


@dataclass(frozen=True, slots=True)
class Spelling:
    """How values are spelled where it differs from JSON.

    quotes: what may stand around a string, the one to write first. escapes: whether a backslash
    means something in a string. bare_keys: keys are written without quotes. separator, colon:
    between members, and between a key and its value. constants: true, false, null.
    """

    quotes: tuple[str, ...] | list[str]
    escapes: bool
    bare_keys: bool
    separator: str
    colon: str
    constants: tuple[str, ...] | list[str]

    def quoted(self, text: str) -> str:
        """A string as a value."""
        return (
            json.dumps(text, ensure_ascii=False)
            if self.escapes
            else self.quotes[0] + text + self.quotes[0]
        )

    def key(self, text: str) -> str:
        """A key up to its value."""
        return (text if self.bare_keys else self.quoted(text)) + self.colon


PYTHON = Spelling(('"', "'"), True, False, ", ", ": ", ("True", "False", "None"))


def spelled_value(value: Any, spelling: Spelling) -> str:
    """A decoded JSON value as this spelling writes it."""
    if isinstance(value, str):
        return spelling.quoted(value)
    if value is None or isinstance(value, bool):
        return spelling.constants[2 if value is None else 0 if value else 1]
    if isinstance(value, list):
        return f"[{spelling.separator.join(spelled_value(v, spelling) for v in value)}]"
    if isinstance(value, dict):
        members = (spelling.key(k) + spelled_value(v, spelling) for k, v in value.items())
        return "{" + spelling.separator.join(members) + "}"
    return json.dumps(value)


def read_value(text: str, spelling: Spelling) -> Any:
    """The value that the whole text spells. Raises ``Misspelled``."""
    reader = _Reader(text, spelling)
    value = reader.value(0)
    reader.space()
    if reader.pos != len(text):
        raise Misspelled("there is something after the value")
    return value


def read_keywords(text: str, spelling: Spelling) -> dict[str, Any]:
    """``a=1, b="x"`` as a dict. Raises ``Misspelled``, also for arguments without a name."""
    reader = _Reader(text, spelling)
    found: dict[str, Any] = {}
    while reader.more(not found, ""):
        key = reader.word()
        reader.expect("=")
        if key in found:
            raise Misspelled(f"the argument '{key}' is given twice")
        found[key] = reader.value(0)
    return found


class _Reader:
    """Recursive descent over a whole text."""

    def __init__(self, text: str, spelling: Spelling):
        self.text, self.spelling, self.pos = text, spelling, 0

    def space(self) -> None:
        found = _SPACE.match(self.text, self.pos)
        assert found is not None
        self.pos = found.end()

    def at(self, text: str) -> bool:
        if not self.text.startswith(text, self.pos):
            return False
        self.pos += len(text)
        return True

    def expect(self, text: str) -> None:
        self.space()
        if not self.at(text):
            raise Misspelled(f"'{text}' is missing")

    def more(self, first: bool, closer: str) -> bool:
        """Whether another member follows; takes the comma, or the closer ("" is the text's end)."""
        self.space()
        if not first and self.at(","):
            self.space()
            first = True
        if self.at(closer) if closer else self.pos == len(self.text):
            return False
        if not first:
            raise Misspelled("a comma is missing")
        return True

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise Misspelled("nested too deeply")
        self.space()
        if self.at("["):
            return self.items("]", depth)
        if self.at("("):
            return self.items(")", depth)
        if self.at("{"):
            return self.members(depth)
        string = self.string()
        if string is not None:
            return string
        number = _NUMBER.match(self.text, self.pos)
        if number is not None:
            self.pos = number.end()
            return _number(number.group())
        return self.constant()

    def constant(self) -> Any:
        word = self.word()
        if word not in _CONSTANTS and word != "None":
            raise Misspelled(f"'{word[:40]}' is no value")
        return _CONSTANTS.get(word)

    def items(self, closer: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while self.more(not found, closer):
            found.append(self.value(depth + 1))
        return found

    def members(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.more(not found, "}"):
            key = self.string()
            if key is None:
                if not self.spelling.bare_keys:
                    raise Misspelled("a key is no string")
                key = self.bare_key()
            self.expect(":")
            if key in found:
                raise Misspelled(f"the key '{key[:40]}' is given twice")
            found[key] = self.value(depth + 1)
        return found

    def word(self) -> str:
        found = _WORD.match(self.text, self.pos)
        if found is None:
            raise Misspelled(f"no value at {self.text[self.pos : self.pos + 20]!r}")
        self.pos = found.end()
        return found.group()

    def bare_key(self) -> str:
        end = self.text.find(":", self.pos)
        key = self.text[self.pos : end].strip()
        if end < 0 or not key or any(c in key for c in "{}[],"):
            raise Misspelled("a key is missing")
        self.pos = end
        return key

    def string(self) -> str | None:
        quote = next((q for q in self.spelling.quotes if self.at(q)), None)
        if quote is None:
            return None
        pieces: list[str] = []
        while not self.at(quote):
            if self.spelling.escapes and self.at("\\"):
                pieces.append(self.escaped())
            else:
                pieces.append(self.plain(quote))
        try:
            return "".join(pieces).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            raise Misspelled("half a surrogate pair") from None

    def plain(self, quote: str) -> str:
        """A string's text up to its quote or to a backslash that means something."""
        end = self.text.find(quote, self.pos)
        if end < 0:
            raise Misspelled("a string is not closed")
        if self.spelling.escapes:
            slash = self.text.find("\\", self.pos, end)
            end = slash if slash >= 0 else end
        piece, self.pos = self.text[self.pos : end], end
        return piece

    def escaped(self) -> str:
        char = self.text[self.pos : self.pos + 1]
        self.pos += 1
        if char in _HEX_DIGITS:
            digits = self.text[self.pos : self.pos + _HEX_DIGITS[char]]
            self.pos += len(digits)
            try:
                return chr(int(digits, 16))
            except (ValueError, OverflowError):
                raise Misspelled("an escape is wrong") from None
        if char in "\\'\"/":
            return char
        return _ESCAPES.get(char, "\\" + char)


def _number(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:
        number = float(text)
    if not math.isfinite(number):
        raise Misspelled("a number is too large")
    return number
