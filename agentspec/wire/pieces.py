"""A canonical answer read piece by piece: reasoning and text as they come, calls only whole.

The engine sends whole calls anyway; other servers send arguments in pieces, which are held
meanwhile (``calls.py``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from msgspec import UNSET

from .calls import Call, CallJoiner
from .chat import ChatChunk, ChatResponse, Choice, ChunkChoice
from .think import ThinkFilter

__all__ = ["Call", "Piece", "Pieces", "Text"]


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer's text, of its reasoning, or of a refusal."""

    kind: Literal["text", "reasoning", "refusal"]
    text: str


Piece = Text | Call


class Pieces:
    """Reads choice 0 of one answer.

    call_ids: prefix of the ids given to calls that came without a usable one.
    finish_reason, stopped_by: the upstream's, once they have come.
    """

    def __init__(self, call_ids: str):
        self._calls = CallJoiner(call_ids)
        self._think = ThinkFilter()
        self.finish_reason: str | None = None
        self.stopped_by: str | None = None

    def read(self, chunk: ChatChunk) -> list[Piece]:
        """The pieces that this chunk completes. Raises as ``CallJoiner.read`` does."""
        found: list[Piece] = []
        for choice in self._think.chunk(chunk).choices:
            if choice.index != 0:
                continue
            delta = choice.delta
            content = None if delta.content is UNSET else delta.content
            found += _texts(delta.reasoning_content, content, delta.refusal)
            for call in delta.tool_calls or ():
                found += self._calls.read(call)
            self.finish_reason = choice.finish_reason or self.finish_reason
            self._take_stop(choice)
        return found

    def whole(self, response: ChatResponse) -> list[Piece]:
        """All pieces of an answer that came at once. Raises as ``end`` does."""
        choice = self._think.whole(response).choices[0]
        message = choice.message
        thought = None if message.reasoning_content is UNSET else message.reasoning_content
        calls = [] if message.tool_calls is UNSET else message.tool_calls
        self.finish_reason = choice.finish_reason
        self._take_stop(choice)
        return [
            *_texts(thought, message.content, message.refusal),
            *self._calls.whole(calls, choice.finish_reason),
        ]

    def _take_stop(self, choice: Choice | ChunkChoice) -> None:
        if choice.stop_reason is not UNSET:
            self.stopped_by = choice.stop_reason

    def end(self) -> Sequence[Piece]:
        """The calls still held. One that an output limit cut short is left out.

        Raises ``UpstreamFailed`` for a call that is torn although the answer claims to be whole.
        """
        return self._calls.end(self.finish_reason)


def _texts(reasoning: str | None, content: str | None, refusal: str | None) -> list[Piece]:
    found: list[Piece] = []
    if reasoning:
        found.append(Text("reasoning", reasoning))
    if content:
        found.append(Text("text", content))
    if refusal:
        found.append(Text("refusal", refusal))
    return found
