"""Outputs of the engine -> what a client sees: text, finished calls, why it ended.

``Answer`` reads the outputs of all choices of one turn. Each output becomes a ``Piece``; a stream
sends pieces as they come (``chunks.py``), a whole answer is their fold, so the two cannot differ.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from agentspec.toolcall.parser import (
    CallDropped,
    CallEnd,
    CallStart,
    Event,
    ReasoningDelta,
    TextDelta,
)
from agentspec.wire.chat import (
    AnswerMessage,
    ChatResponse,
    Choice,
    ChoiceLogprobs,
    FunctionCall,
    TokenLogprob,
    ToolCall,
    Usage,
)
from agentspec.wire.errors import GenerationFailed, InternalError, Overloaded, UpstreamTimeout
from agentspec.wire.extension import SpecReport

from . import report as reports
from .constrain import ConstraintUnmet
from .logprobs import LogprobTrack
from .reading import PlainText
from .request import Output
from .turn import Turn

_UNMET = ConstraintUnmet.__name__
"""How the error of a sequence begins whose schema was too hard."""


@dataclass(slots=True)
class Piece:
    """What one output adds to a choice. ``finish_reason`` is set on the last one, and with it
    ``stopped_by``, where a stop string ended the choice."""

    content: str = ""
    reasoning: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    finish_reason: str | None = None
    stopped_by: str | None = None


class ChoiceReader:
    """Reads the outputs of one sequence.

    A call is held until it is complete, its arguments are checked, and something follows it or the
    sequence ends. So a call that the token limit cut is dropped, also where the close-out guard
    shut its JSON: a client would run half a command. Such an end is "length". White space around
    calls is no content. Log probabilities are given for the content before the first call.
    """

    def __init__(self, turn: Turn):
        self._reading = turn.reading
        self._reader = turn.reading.text_reader()
        self._track = LogprobTrack(turn.token_bytes) if turn.logprobs else None
        self._trims = not isinstance(self._reader, PlainText)
        self._space = ""
        self._held: ToolCall | None = None
        self._called = False
        self._plain = ""
        self._malformed: str | None = None
        self.content = ""
        self.reasoning = ""
        self.calls: list[ToolCall] = []
        self.dropped = 0
        self.logprobs: list[TokenLogprob] = []
        self.newest: Output | None = None
        self.last: Output | None = None

    def read(self, output: Output) -> Piece:
        """What ``output`` adds. Raises ``GenerationFailed`` where it breaks its constraint."""
        _raise_failure(output)
        self.newest = output
        piece = Piece()
        for event in self._reader.feed(output.text):
            self._event(event, piece)
        if output.finish_reason is not None:
            self._finish(output, piece)
        if self._track is not None:
            self._track.add(output.infos)
            piece.logprobs = self._track.show(self._plain)
            self._plain = ""
        self.content += piece.content
        self.reasoning += piece.reasoning
        self.calls += piece.calls
        self.logprobs += piece.logprobs
        return piece

    def _event(self, event: Event, piece: Piece) -> None:
        if isinstance(event, TextDelta):
            text = self._space + event.text
            shown = text.rstrip() if self._trims else text
            self._space = text[len(shown) :]
            self._give_content(shown, piece)
        elif isinstance(event, ReasoningDelta):
            piece.reasoning += event.text
        elif isinstance(event, CallStart):
            self._give_call(piece)
            self._called = True
            self._space = ""
        elif isinstance(event, CallEnd):
            self._hold(event)
        elif isinstance(event, CallDropped):
            self._give_call(piece)
            self._malformed = event.reason
            self.dropped += 1

    def _give_content(self, text: str, piece: Piece) -> None:
        if text:
            self._give_call(piece)
            piece.content += text
            self._plain += "" if self._called else text

    def _hold(self, event: CallEnd) -> None:
        if self._reading.calls_refused:
            self.dropped += 1
            return
        wrong = self._reading.arguments.check(event.name, event.arguments_text)
        if wrong is not None:
            raise GenerationFailed(f"The arguments of a call of '{event.name}' are wrong: {wrong}.")
        function = FunctionCall(name=event.name, arguments=event.arguments_text)
        self._held = ToolCall(function=function, id=f"call_{secrets.token_hex(12)}")

    def _give_call(self, piece: Piece) -> None:
        if self._held is not None:
            piece.calls.append(self._held)
            self._held = None

    def _finish(self, output: Output, piece: Piece) -> None:
        complete = output.finish_reason == "stop" and not output.closed_out
        for event in self._reader.finish():
            if complete or not self._is_torn_marker(event):
                self._event(event, piece)
        self.last = output
        piece.finish_reason = "stop" if complete else "length"
        piece.stopped_by = output.stopped_by
        if output.closed_out and self._held is not None:
            self._held = None
            self.dropped += 1
        self._give_call(piece)
        calls = bool(self.calls or piece.calls)
        if not calls:
            self._give_content(self._space, piece)
        if complete:
            self._check(self.content + piece.content, calls)
            if calls and not self._reading.named:
                piece.finish_reason = "tool_calls"

    def _is_torn_marker(self, event: Event) -> bool:
        """Whether what was held back to the end is the beginning of a call's marker.

        A single character of it is taken for text where text is allowed.
        """
        least = 1 if self._reading.calls_required else 2
        return (
            isinstance(event, TextDelta)
            and len(event.text) >= least
            and self._reading.format.open.startswith(event.text)
        )

    def _check(self, content: str, calls: bool) -> None:
        """The model ended by itself: its answer must have the form that was demanded."""
        reading = self._reading
        if self._malformed is not None and not reading.calls_refused:
            raise GenerationFailed(f"A tool call could not be read: {self._malformed}.")
        if reading.calls_required and not calls:
            raise GenerationFailed("A tool call was required, but none was made.")
        if reading.answer is not None and not calls:
            wrong = reading.answer.check(content)
            if wrong is not None:
                raise GenerationFailed(f"The answer does not match its response_format: {wrong}.")

    def choice(self, index: int, finish_reason: str | None) -> Choice:
        """The fold of all pieces."""
        message = AnswerMessage(content=None if self.calls and not self.content else self.content)
        if self.reasoning:
            message.reasoning_content = self.reasoning
        if self.calls:
            message.tool_calls = self.calls
        logprobs = ChoiceLogprobs(content=self.logprobs) if self._track is not None else None
        choice = Choice(index, message, finish_reason, logprobs)
        if self.last is not None and self.last.stopped_by is not None:
            choice.stop_reason = self.last.stopped_by
        return choice


def _raise_failure(output: Output) -> None:
    """An end that is no answer, as its error."""
    if output.finish_reason == "deadline":
        message = "The request's deadline (agentspec.deadline_ms) passed before it was done."
        raise UpstreamTimeout(message, code="deadline_exceeded")
    if output.finish_reason == "abort":
        raise Overloaded("The engine gave the request up.")
    if output.finish_reason == "error" and (output.error or "").startswith(_UNMET):
        raise GenerationFailed("No answer was found that satisfies the schema.")
    if output.finish_reason == "error":
        raise InternalError(f"The engine failed: {output.error}")


class Answer:
    """The answer of one turn, while its choices run and when they have ended."""

    def __init__(self, turn: Turn):
        self._turn = turn
        self._index = {sequence.id: i for i, sequence in enumerate(turn.sequences)}
        self._readers = [ChoiceReader(turn) for _ in turn.sequences]
        self._reasons: list[str | None] = [None] * len(turn.sequences)

    def read(self, output: Output) -> tuple[int, Piece]:
        """(choice index, what it gained). Raises the error that this output means."""
        index = self._index[output.id]
        piece = self._readers[index].read(output)
        self._reasons[index] = piece.finish_reason
        return index, piece

    def running_usage(self) -> Usage:
        """Usage so far, over all choices, while they run."""
        news = [reader.newest for reader in self._readers if reader.newest is not None]
        return reports.usage(
            prompt_tokens=self._turn.prompt_tokens,
            cached_tokens=news[0].cached_tokens if news else 0,
            output_tokens=sum(output.output_tokens for output in news),
        )

    def totals(self) -> tuple[Usage, SpecReport]:
        """Usage and report over all choices, which have ended."""
        lasts = [reader.last for reader in self._readers if reader.last is not None]
        report = reports.merged([last.report for last in lasts if last.report is not None])
        report.arm = self._turn.arm
        report.max_tokens_clamped = self._turn.max_tokens_clamped
        report.tools_saved_chars = self._turn.tools_saved_chars
        report.tool_calls_valid = sum(len(reader.calls) for reader in self._readers)
        report.tool_calls_dropped = sum(reader.dropped for reader in self._readers)
        usage = reports.usage(
            prompt_tokens=self._turn.prompt_tokens,
            cached_tokens=lasts[0].cached_tokens,
            output_tokens=sum(last.output_tokens for last in lasts),
            report=report,
        )
        return usage, report

    def response(self) -> ChatResponse:
        """The whole answer."""
        usage, report = self.totals()
        turn = self._turn
        return ChatResponse(
            id=turn.id,
            created=turn.created,
            model=turn.model,
            choices=[
                reader.choice(i, reason)
                for i, (reader, reason) in enumerate(zip(self._readers, self._reasons, strict=True))
            ],
            usage=usage,
            agentspec=report,
        )
