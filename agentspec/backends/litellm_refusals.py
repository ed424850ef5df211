"""Refusals in streams of litellm, which drops every chunk that holds nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from .foreign import ForeignAnswer, ForeignText


class Refusals:
    """A provider's own chunks on their way to litellm: passed as they are, their refusals noted.

    stream: an asynchronous iterable; everything but its items is its own affair.
    """

    def __init__(self, stream: Any):
        self._stream = stream
        self._chunks: AsyncIterator[Any] = aiter(stream)
        self._told: dict[int, str] = {}

    def __aiter__(self) -> Refusals:
        return self

    async def __anext__(self) -> Any:
        chunk = await anext(self._chunks)
        for choice in getattr(chunk, "choices", None) or ():
            told = getattr(getattr(choice, "delta", None), "refusal", None)
            if isinstance(told, str) and told:
                index = getattr(choice, "index", 0) or 0
                self._told[index] = self._told.get(index, "") + told
        return chunk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def put_into(self, answer: ForeignAnswer) -> None:
        """Add what was noted to a chunk of litellm's (in place)."""
        for choice in answer.choices or ():
            told = self._told.pop(choice.index, None)
            if told is not None:
                choice.delta = choice.delta or ForeignText()
                choice.delta.refusal = told


def tapped(stream: Any) -> Refusals | None:
    """The tap of litellm's ``CustomStreamWrapper``; None where it has no chunks of a provider."""
    own = getattr(stream, "completion_stream", None)
    if not hasattr(own, "__aiter__"):
        return None
    stream.completion_stream = tap = Refusals(own)
    return tap
