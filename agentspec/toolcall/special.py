"""Markers that are tokens of their own: told apart from the same letters written as text.

Inside the parser such a token is one noncharacter of Unicode (U+FDD0 to U+FDEF, which no text may
hold); what leaves the parser is spelled out again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from typing import Any

from .events import CallEnd, Event, ReasoningDelta, TextDelta
from .format import ToolFormat

_STAND_INS = range(0xFDD0, 0xFDF0)
_REPLACED = dict.fromkeys(_STAND_INS, "�")
_MARKER_FIELDS = (
    *("open", "close", "list_open", "list_close", "separator", "also_open", "also_close"),
    *("head_template", "tail_template", "id_open", "tags", "spelling", "reasoning", "channels"),
)


class SpecialTokens:
    """``format``: the format with its special markers replaced by stand-ins."""

    def __init__(self, fmt: ToolFormat, special: Collection[str]):
        texts = "\n".join(strings_of([getattr(fmt, name) for name in _MARKER_FIELDS]))
        used = sorted((s for s in special if s and s in texts), key=lambda s: (-len(s), s))
        self._stand_ins = {s: chr(c) for s, c in zip(used, _STAND_INS, strict=False)}
        self._spelled = {ord(stand_in): s for s, stand_in in self._stand_ins.items()}
        self.format = fmt
        if used:
            changes = {name: self._hidden(getattr(fmt, name)) for name in _MARKER_FIELDS}
            self.format = dataclasses.replace(fmt, **changes)

    def taken(self, text: str, special: bool) -> str:
        """What the parser reads for a piece of text, or for a special token."""
        if special and text in self._stand_ins:
            return self._stand_ins[text]
        return text.translate(_REPLACED) if self._stand_ins else text

    def given(self, event: Event) -> Event:
        """An event with its text spelled out."""
        if not self._stand_ins:
            return event
        if isinstance(event, TextDelta | ReasoningDelta):
            return type(event)(event.text.translate(self._spelled))
        if isinstance(event, CallEnd):
            text = event.arguments_text.translate(self._spelled)
            return CallEnd(event.index, event.name, text)
        return event

    def _hidden(self, value: Any) -> Any:
        """A format's field with the markers replaced in each string."""
        if isinstance(value, str):
            for spelling, stand_in in self._stand_ins.items():
                value = value.replace(spelling, stand_in)
            return value
        if isinstance(value, tuple | list):
            return tuple(map(self._hidden, value))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [f.name for f in dataclasses.fields(value)]
            changes: dict[str, Any] = {n: self._hidden(getattr(value, n)) for n in fields}
            return dataclasses.replace(value, **changes)
        return value


def strings_of(value: Any) -> list[str]:
    """Every string in a format's fields."""
    if isinstance(value, str):
        return [value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in dataclasses.fields(value)]
    if isinstance(value, tuple | list):
        return [text for item in value for text in strings_of(item)]
    return []
