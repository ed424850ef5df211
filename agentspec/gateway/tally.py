"""What one request did, counted while it runs, and put into its ledger row at the end."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from msgspec import UNSET

from agentspec.backends.base import CallCounts
from agentspec.routing.decision import Decision
from agentspec.routing.taskclass import kind_of
from agentspec.settings import ModelSettings
from agentspec.store.record import (
    CallRecord,
    CallsRecord,
    Note,
    OpenRecord,
    PayloadRecord,
    RequestRecord,
)
from agentspec.store.rollup import LARGEST
from agentspec.wire.calls import is_object
from agentspec.wire.chat import ChatChunk, ChatRequest, ChatResponse, FunctionCall, Usage
from agentspec.wire.errors import (
    AgentspecError,
    UpstreamFailed,
    UpstreamUnreachable,
)
from agentspec.wire.extension import SpecReport

from .prompt_size import prompt_tokens

CLIENT_CLOSED_REQUEST = 499
_COUNTS = (
    *("in_tok", "cached_tok", "out_tok", "reason_tok", "forced_tok", "max_tokens_clamped"),
    *("spec_steps", "spec_drafted", "spec_accepted", "max_tokens"),
    *("busy_prefill_us", "busy_decode_us", "busy_draft_us", "busy_grammar_us"),
    *("tool_calls", "tool_calls_valid", "tool_calls_dropped", "tool_calls_repaired"),
    "tools_saved_chars",
)
_CHARS_PER_TOKEN = 4  # the usual rule of thumb, for answers without a count


@dataclass(slots=True)
class _Call:
    name: str = ""
    arguments: str = ""


class Tally:
    """The running count of one request.

    started_s: monotonic seconds when the request was taken in. asked: its body, where that and the
    answer are to be kept beside the row.
    """

    def __init__(self, opened: OpenRecord, started_s: float, asked: bytes | None = None):
        self._asked = asked
        self._said: list[bytes] = []
        self._opened = opened
        self._started_s = started_s
        self._first_s: float | None = None
        self._last_s = started_s
        self._chunks = 0
        self._texts = 0
        self._chars = 0
        self._calls: dict[tuple[int, int], _Call] = {}
        self._finish_reason: str | None = None
        self._idle_s = 0.0
        self.usage: Usage | None = None
        self.report: SpecReport | None = None
        self.calls: CallCounts | None = None
        self.workload = "chat"
        self.decision: Decision | None = None
        self._request: ChatRequest | None = None
        self._upstream_model = ""
        self._names: Mapping[str, str] = {}

    def take_request(self, request: ChatRequest, model: ModelSettings) -> None:
        """The request was understood, and will run on ``model``."""
        self._request = request
        self._upstream_model = model.upstream_name or request.model
        self._names = model.upstream_names
        self.workload = kind_of(request)

    @contextlib.contextmanager
    def waiting(self, tick_s: Callable[[], float]) -> Iterator[None]:
        """Count the time inside as spent waiting for the backend or the client."""
        began_s = tick_s()
        try:
            yield
        finally:
            self._idle_s += tick_s() - began_s

    def take_chunk(self, chunk: ChatChunk, now_s: float) -> None:
        """Count a chunk of the stream; ``now_s`` is when it came."""
        self._take_reports(chunk)
        for choice in chunk.choices:
            if choice.index == 0 and choice.finish_reason:
                self._finish_reason = choice.finish_reason
            delta = choice.delta
            for call in delta.tool_calls or ():
                self._take_call((choice.index, call.index), call.function)
            if delta.content or delta.tool_calls or delta.reasoning_content:
                self._chunks += 1
                self._texts += bool(delta.content or delta.reasoning_content)
                self._chars += len(delta.content or "") + len(delta.reasoning_content or "")
                self._last_s = now_s
                if self._first_s is None:
                    self._first_s = now_s

    def take_response(self, response: ChatResponse) -> None:
        """Count a whole answer."""
        self._take_reports(response)
        self._finish_reason = response.choices[0].finish_reason
        for choice in response.choices:
            message = choice.message
            self._chars += len(message.content or "") + len(message.reasoning_content or "")
            calls = message.tool_calls
            for index, call in enumerate([] if calls is UNSET else calls):
                self._take_call((choice.index, index), call.function)

    def _take_call(self, key: tuple[int, int], piece: FunctionCall | None) -> None:
        call = self._calls.setdefault(key, _Call())
        if piece is not None:
            call.name = call.name or piece.name or ""
            call.arguments += piece.arguments or ""
            self._chars += len(piece.arguments or "")

    @property
    def _said_tok(self) -> int:
        """About how many tokens came of an answer that was not counted: a chunk is at least one."""
        return max(self._chunks, self._chars // _CHARS_PER_TOKEN, int(self._chars > 0))

    def age_s(self, now_s: float) -> float:
        """How long ago the request was taken in."""
        return now_s - self._started_s

    def say(self, piece: bytes) -> None:
        """What the client is sent of the answer, piece by piece."""
        if self._asked is not None:
            self._said.append(piece)

    def notes(self) -> list[Note]:
        """What is kept beside the row: a line a call, and (by the settings) both texts."""
        id, ts_ms = self._opened.id, self._opened.ts_ms
        notes: list[Note] = []
        if self._calls:
            calls = [CallRecord(c.name, self._is_valid(c)) for _, c in sorted(self._calls.items())]
            notes.append(CallsRecord(id, ts_ms, calls))
        if self._asked is not None:
            for kind, text in (("request", self._asked), ("response", b"".join(self._said))):
                notes.append(PayloadRecord(id, ts_ms, kind, text.decode(errors="replace")))
        return notes

    def _is_valid(self, call: _Call) -> bool:
        """Calls that were checked on the way are right, or would not be here."""
        return self._calls_checked or is_object(call.arguments)

    @property
    def _calls_checked(self) -> bool:
        """Whether calls are held until they are whole and checked, by the engine or on the way."""
        engine = self.decision is not None and self.decision.chosen_kind == "engine"
        return engine or (self.calls is not None and self.calls.checked)

    def _take_reports(self, answer: ChatChunk | ChatResponse) -> None:
        if answer.usage is not UNSET and answer.usage is not None:
            self.usage = answer.usage
        if answer.agentspec is not UNSET:
            self.report = answer.agentspec

    def finished(self, now_s: float) -> RequestRecord:
        """The row of a request that was answered in full."""
        return self._record(now_s)

    def failed(self, error: AgentspecError, now_s: float, status: int) -> RequestRecord:
        """The row of a request that ends with an error. status: the HTTP status the client sees."""
        if self.usage is None:
            self.usage = error.usage  # counts that were held back with what went wrong
        record = self._record(now_s)
        record.status, record.http_status = "error", status
        record.error_type, record.error_code = error.type, error.code
        if self._first_s is None and self._was_refused(error):
            record.cost_nusd = 0
        return record

    def _was_refused(self, error: AgentspecError) -> bool:
        """Whether the last backend that was tried turned the request away, which nobody bills: it
        could not be reached, or answered with a status of its own. One that broke off or fell
        silent may bill what it did; of those before it ``decision`` tells."""
        told = isinstance(error, UpstreamFailed) and error.status is not None
        return told or isinstance(error, UpstreamUnreachable)

    def cancelled(self, now_s: float) -> RequestRecord:
        """The row of a request whose client left."""
        record = self._record(now_s)
        record.status, record.http_status = "cancelled", CLIENT_CLOSED_REQUEST
        return record

    def _record(self, now_s: float) -> RequestRecord:
        record = RequestRecord(
            **{name: getattr(self._opened, name) for name in OpenRecord.__struct_fields__}
        )
        e2e_s = now_s - self._started_s
        record.e2e_ms = e2e_s * 1000
        record.gateway_ms = max(0.0, e2e_s - self._idle_s) * 1000
        record.workload = self.workload
        record.finish_reason = self._finish_reason
        self._add_request(record)
        self._add_decision(record)
        self._add_usage(record)
        self._add_report(record)
        self._add_times(record)
        self._add_calls(record)
        _bound(record)
        return record

    def _add_request(self, record: RequestRecord) -> None:
        request = self._request
        if request is None:
            return
        record.n_messages = len(request.messages)
        record.n_tools = len(request.tools or ())
        choice = request.tool_choice
        record.tool_choice = choice if isinstance(choice, str) else ("named" if choice else "")
        record.response_format = request.response_format.type if request.response_format else ""
        record.max_tokens = request.token_limit
        record.temperature = request.temperature

    def _add_decision(self, record: RequestRecord) -> None:
        record.upstream_model = self._upstream_model
        record.attempts = 0
        if self.decision is not None:
            record.decision = self.decision.as_record()
            record.attempts = len(self.decision.attempts)
            record.backend, record.backend_kind = self.decision.chosen, self.decision.chosen_kind
            record.upstream_model = self._names.get(record.backend, self._upstream_model)

    def _add_usage(self, record: RequestRecord) -> None:
        usage = self.usage
        if usage is not None and max(usage.prompt_tokens, usage.completion_tokens) <= 0:
            usage = None  # no request that ran took nothing: some servers fill in zeros
        if usage is not None:
            inputs, outputs = usage.prompt_tokens_details, usage.completion_tokens_details
            record.in_tok, record.out_tok = usage.prompt_tokens, usage.completion_tokens
            if inputs is not None:
                record.cached_tok = min(inputs.cached_tokens, record.in_tok)
                record.cache_write_tok = inputs.cache_write_tokens or None
                record.cache_write_1h_tok = inputs.cache_write_1h_tokens or None
            record.reason_tok = outputs.reasoning_tokens if outputs else 0
            self._add_untold(record)
        elif self._chunks and self._request is not None:
            # A broken or cancelled stream: a chunk is at least a token.
            record.in_tok, record.out_tok = prompt_tokens(self._request), self._said_tok
            record.token_source = "estimated"
        else:
            record.token_source = "none"

    def _add_untold(self, record: RequestRecord) -> None:
        """Estimate what the usage leaves out. Broken off: some vendors' running count stands at the
        first token until the end. Whole: some count one side only."""
        request = self._request
        if request is None or request.token_limit == 0:
            return
        uncounted = record.out_tok <= 0 or (self._chunks and self._finish_reason is None)
        if uncounted and self._said_tok > record.out_tok:
            record.out_tok, record.token_source = self._said_tok, "estimated"
        if record.in_tok <= 0:
            record.in_tok, record.token_source = prompt_tokens(request), "estimated"

    def _add_report(self, record: RequestRecord) -> None:
        report = self.report
        if report is None:
            return
        record.spec_arm, record.spec_window = report.arm, report.window
        record.spec_steps, record.spec_hist = report.steps, report.hist
        record.spec_drafted, record.spec_accepted = report.totals()
        record.spec_sources = {
            name: {"drafted": count.drafted, "accepted": count.accepted}
            for name, count in report.sources.items()
        }
        forced = report.sources.get("forced")
        record.forced_tok = forced.accepted if forced else 0
        record.redecoded_tok = report.redecoded
        record.tools_saved_chars = report.tools_saved_chars
        record.exact = report.exact
        record.max_tokens_clamped = report.max_tokens_clamped
        record.grammar_cold = report.grammar_cold
        busy = report.busy_us
        record.busy_prefill_us, record.busy_decode_us = busy.prefill, busy.decode
        record.busy_draft_us, record.busy_grammar_us = busy.draft, busy.grammar
        record.queue_ms = report.queue_us / 1000

    def _add_times(self, record: RequestRecord) -> None:
        if self._first_s is None:
            return
        record.ttft_ms = (self._first_s - self._started_s) * 1000
        # Checked calls come whole at the answer's end: alone, they tell no time per token.
        timed = self._texts > 0 or not self._calls_checked
        if timed and self.usage is not None and record.out_tok > 1:
            record.tpot_ms = (self._last_s - self._first_s) * 1000 / (record.out_tok - 1)

    def _add_calls(self, record: RequestRecord) -> None:
        """Calls are checked against their schema by our engine, or on the way from a backend that
        is not constrained; of others only the JSON is looked at."""
        record.tool_calls = len(self._calls)
        if self.calls is not None and self.calls.checked:
            record.tool_calls_valid = self.calls.valid
            record.tool_calls_dropped = self.calls.dropped
            record.tool_calls_repaired = self.calls.repaired
        elif self.report is not None and record.backend_kind == "engine":
            record.tool_calls_valid = self.report.tool_calls_valid
            record.tool_calls_dropped = self.report.tool_calls_dropped
        else:
            record.tool_calls_valid = sum(is_object(c.arguments) for c in self._calls.values())


def _bound(record: RequestRecord) -> None:
    """Bring every count into what a row can hold: what backends tell may be anything."""
    for name in _COUNTS:
        value = getattr(record, name)
        if value is not None and not 0 <= value <= LARGEST:
            setattr(record, name, max(0, min(LARGEST, value)))
    record.spec_hist = [max(0, min(LARGEST, steps)) for steps in record.spec_hist]
