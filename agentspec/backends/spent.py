"""Tokens of a turn that a backend was asked for more than once."""

from __future__ import annotations

import msgspec

from agentspec.wire.chat import Usage


class Spent:
    """Tokens over all attempts: each was paid for."""

    def __init__(self) -> None:
        self._before: Usage | None = None
        self._now: Usage | None = None

    def add(self, usage: Usage) -> Usage:
        """The usage of this attempt so far, those before it included."""
        self._now = usage if self._before is None else _sum(self._before, usage)
        return self._now

    @property
    def total(self) -> Usage | None:
        """All so far; None where nothing was told."""
        return self._now

    def close(self) -> None:
        """This attempt has ended."""
        self._before = self._now


def _sum(one: Usage, other: Usage) -> Usage:
    total = msgspec.convert(msgspec.to_builtins(other), Usage)
    _add(total, one)
    return total


def _add(total: msgspec.Struct, more: msgspec.Struct) -> None:
    for name in total.__struct_fields__:
        ours, theirs = getattr(total, name), getattr(more, name)
        if isinstance(ours, int) and isinstance(theirs, int):
            setattr(total, name, ours + theirs)
        elif isinstance(ours, msgspec.Struct) and isinstance(theirs, msgspec.Struct):
            _add(ours, theirs)
        elif ours is None and theirs is not None:
            setattr(total, name, theirs)
