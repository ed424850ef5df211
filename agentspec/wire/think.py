"""Reasoning that a model writes into its text, between ``<think>`` and ``</think>``.

Servers without a parser for it pass it on as content. Looked for at the beginning of an answer
only; an answer that begins otherwise is left alone. White space around the marks is dropped.
"""

from __future__ import annotations

from msgspec import UNSET

from .chat import ChatChunk, ChatResponse, ChunkChoice

OPEN, CLOSE = "<think>", "</think>"


class Splitter:
    """Cuts one choice's text, fed in any pieces, into reasoning and answer."""

    def __init__(self) -> None:
        self._state = "start"
        self._held = ""

    @property
    def plain(self) -> bool:
        """Whether nothing remains to be looked for."""
        return self._state == "plain"

    def feed(self, piece: str) -> tuple[str, str]:
        """(reasoning, text) that are certain by now; the rest is held."""
        text, self._held = self._held + piece, ""
        if self._state == "start":
            seen = text.lstrip()
            if OPEN.startswith(seen):
                self._held = text
                return "", ""
            if not seen.startswith(OPEN):
                self._state = "plain"
                return "", text
            self._state, text = "opened", seen[len(OPEN) :]
        reasoning = ""
        if self._state in ("opened", "inside"):
            reasoning, text = self._inside(text)
        if self._state == "closed":
            text = text.lstrip()
            if text:
                self._state = "plain"
        return reasoning, text

    def _inside(self, text: str) -> tuple[str, str]:
        if self._state == "opened":
            text = text.lstrip()
            if text:
                self._state = "inside"
        reasoning, found, rest = text.partition(CLOSE)
        if found:
            self._state = "closed"
            return reasoning.rstrip(), rest
        kept = _certain(text)
        self._held = text[kept:]
        return text[:kept], ""

    def end(self) -> tuple[str, str]:
        """What is still held, at the end of the answer."""
        text, self._held = self._held, ""
        inside = self._state in ("opened", "inside")
        self._state = "plain"
        return (text.rstrip(), "") if inside else ("", text)


def _certain(text: str) -> int:
    """How many characters of ``text`` cannot belong to the closing mark or the space before it."""
    for size in range(min(len(CLOSE) - 1, len(text)), 0, -1):
        if CLOSE.startswith(text[-size:]):
            return len(text[:-size].rstrip())
    return len(text.rstrip())


class ThinkFilter:
    """Moves such reasoning into ``reasoning_content``, on all choices of one answer."""

    def __init__(self) -> None:
        self._splitters: dict[int, Splitter] = {}

    def chunk(self, chunk: ChatChunk) -> ChatChunk:
        """The chunk, changed in place."""
        for choice in chunk.choices:
            splitter = self._splitters.setdefault(choice.index, Splitter())
            if not splitter.plain:
                _split(choice, splitter)
        return chunk

    def whole(self, response: ChatResponse) -> ChatResponse:
        """A whole answer, changed in place."""
        for choice in response.choices:
            message = choice.message
            if message.content and message.reasoning_content is UNSET:
                reasoning, text = split(message.content)
                if reasoning:
                    message.reasoning_content = reasoning
                    message.content = text or None
        return response


def split(text: str) -> tuple[str, str]:
    """(reasoning, text) of a whole answer's text."""
    splitter = Splitter()
    pairs = (splitter.feed(text), splitter.end())
    return "".join(pair[0] for pair in pairs), "".join(pair[1] for pair in pairs)


def _split(choice: ChunkChoice, splitter: Splitter) -> None:
    delta = choice.delta
    content = delta.content if isinstance(delta.content, str) else ""
    reasoning, text = splitter.feed(content) if content else ("", "")
    if choice.finish_reason or delta.tool_calls or delta.reasoning_content or delta.refusal:
        more, rest = splitter.end()
        reasoning, text = reasoning + more, text + rest
    if reasoning:
        delta.reasoning_content = (delta.reasoning_content or "") + reasoning
    if text or content:
        delta.content = text
