"""Pieces of an answer -> stream chunks: one id, one created and one model in all of a stream."""

from __future__ import annotations

from msgspec import UNSET

from agentspec.wire.chat import (
    ChatChunk,
    ChoiceLogprobs,
    ChunkChoice,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
    Usage,
)
from agentspec.wire.extension import SpecReport

from .answer import Piece
from .turn import Turn


class ChunkWriter:
    """Writes the chunks of one stream."""

    def __init__(self, turn: Turn):
        self._turn = turn
        self._begun: set[int] = set()
        self._call_counts = [0] * len(turn.sequences)

    def piece(self, index: int, piece: Piece) -> list[ChatChunk]:
        """The chunks that give out what choice ``index`` gained; none where it gained nothing."""
        deltas = []
        if piece.reasoning:
            deltas.append(Delta(reasoning_content=piece.reasoning))
        if piece.content:
            deltas.append(Delta(content=piece.content))
        for call in piece.calls:
            deltas += self._call(index, call)
        if piece.finish_reason is not None:
            deltas.append(Delta())
        if not deltas:
            return []
        if index not in self._begun:
            self._begun.add(index)
            self._begin(deltas[0])
        choices = [ChunkChoice(index=index, delta=delta) for delta in deltas]
        choices[-1].finish_reason = piece.finish_reason
        if piece.stopped_by is not None:
            choices[-1].stop_reason = piece.stopped_by
        if piece.logprobs:
            choices[0].logprobs = ChoiceLogprobs(content=piece.logprobs)
        return [self._chunk([choice]) for choice in choices]

    def opening(self, index: int) -> list[ChatChunk]:
        """The chunk that says choice ``index`` has begun, where none has said so yet."""
        if index in self._begun:
            return []
        self._begun.add(index)
        return [self._chunk([ChunkChoice(index=index, delta=Delta(role="assistant", content=""))])]

    @staticmethod
    def _begin(delta: Delta) -> None:
        delta.role = "assistant"
        if delta.content is UNSET:
            delta.content = None if delta.tool_calls else ""

    def _call(self, index: int, call: ToolCall) -> list[Delta]:
        """A finished call as two deltas: what it is, then all its arguments."""
        ordinal = self._call_counts[index]
        self._call_counts[index] += 1
        head = ToolCallDelta(
            index=ordinal,
            id=call.id,
            type="function",
            function=FunctionCall(name=call.function.name, arguments=""),
        )
        body = ToolCallDelta(
            index=ordinal, function=FunctionCall(arguments=call.function.arguments)
        )
        return [Delta(tool_calls=[head]), Delta(tool_calls=[body])]

    def end(self, usage: Usage, report: SpecReport) -> list[ChatChunk]:
        """The usage chunk, where the request asked for usage or spoke of ``agentspec``."""
        if not (self._turn.include_usage or self._turn.wants_report):
            return []
        chunk = self._chunk([])
        chunk.usage = usage
        chunk.agentspec = report
        return [chunk]

    def _chunk(self, choices: list[ChunkChoice]) -> ChatChunk:
        turn = self._turn
        return ChatChunk(
            id=turn.id,
            created=turn.created,
            model=turn.model,
            choices=choices,
            usage=None if turn.include_usage else UNSET,
        )
