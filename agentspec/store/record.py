"""What the ledger knows about one request: the opening record and the finished row.

Times are integer milliseconds UTC, money is integer nano-USD, counts are tokens unless named
otherwise. The columns follow section 3 of the schema page in docs/ledger.md.
"""

from __future__ import annotations

import msgspec


class OpenRecord(msgspec.Struct, omit_defaults=True, tag="open", tag_field="t"):
    """Written when a request is taken in. Without a later ``RequestRecord`` it becomes ``lost``."""

    id: str
    ts_ms: int
    surface: str = "chat"
    model: str = ""
    session_id: str = ""
    session_source: str = ""
    client: str = ""
    client_version: str = ""
    key_id: str = ""
    stream: bool = False


class CallRecord(msgspec.Struct, frozen=True):
    """One tool call of an answer. valid: against its schema, or, where none is known, as JSON;
    repaired: mended on the way."""

    name: str
    valid: bool
    repaired: bool = False


class CallsRecord(msgspec.Struct, tag="calls", tag_field="t"):
    """The tool calls of a request's answer, in its order; journalled together with its end."""

    id: str
    ts_ms: int
    calls: list[CallRecord]


class PayloadRecord(msgspec.Struct, tag="payload", tag_field="t"):
    """What was asked (kind "request") or answered ("response"), as it came. Only where the settings
    say ``store.payloads``; what looks like a secret is blanked out on the way to the database."""

    id: str
    ts_ms: int
    kind: str
    body: str


Note = CallsRecord | PayloadRecord


class RequestRecord(msgspec.Struct, omit_defaults=True, tag="done", tag_field="t"):
    """The finished request. ``id`` is a UUIDv7 in text form; the store keys on it (idempotent).

    status: "ok", "error", "cancelled" (the client left) or, set by the writer only, "lost".
    http_status: what the client saw: 200 also for an error told inside a running stream, 499 for a
        client that left before the end; None for a lost request.
    e2e_ms: from taking the request in to its last byte; None for a lost request.
    token_source: "engine" (reported by the backend), "estimated", or "none"; then its cost is known
        (0) only where it was never sent on, or turned away by the backend.
    in_tok = fresh + cached; spec_* leave grammar-forced tokens out (they are forced_tok).
    cache_write_tok: fresh ones that were written to a cache of the vendor's, which bills them apart
        (None: none were, or the backend does not tell); cache_write_1h_tok: those for an hour.
    redecoded_tok: taken back unsent, since no right answer goes on so; not in out_tok;
        None where the backend does not tell.
    tools_saved_chars: by how much the tools, shown in short, are shorter than in full (characters);
        0 where they were shown in full, None where the backend does not tell.
    spec_sources: JSON {name: {drafted, accepted}}; spec_hist: JSON [steps that accepted j drafts].
    cost_*: None: unknown; by what it was computed tell ``cost_formula`` (0: by nothing; the others
        in ``store.cost``) and ``price_version_id``. cost_nusd is the sum of the four others;
        cost_failed_nusd is of calls that failed before the last one (``decision``'s attempts), at
        backends that bill by tokens.
    spec_window: "on", "off" (the whole engine did without speculation all the while), "mixed" (for
        a part of it), or None (no such windows, docs/cost.md). spec_arm: a label of the caller's.
    decision: JSON {policy, chosen, candidates, reason, propensity, attempts}; propensity is that
        of the backend tried first, reason tells how it came to ``chosen``.
    """

    id: str
    ts_ms: int
    surface: str = "chat"
    status: str = "ok"
    http_status: int | None = 200
    error_type: str | None = None
    error_code: str | None = None
    finish_reason: str | None = None
    model: str = ""
    upstream_model: str = ""
    backend: str = ""
    backend_kind: str = ""
    session_id: str = ""
    session_source: str = ""
    client: str = ""
    client_version: str = ""
    key_id: str = ""
    stream: bool = False
    n_messages: int = 0
    n_tools: int = 0
    tool_choice: str = ""
    response_format: str = ""
    workload: str = "chat"
    max_tokens: int | None = None
    max_tokens_clamped: int | None = None
    temperature: float | None = None
    attempts: int = 1
    in_tok: int = 0
    cached_tok: int = 0
    out_tok: int = 0
    reason_tok: int = 0
    forced_tok: int = 0
    token_source: str = "engine"
    spec_arm: str | None = None
    spec_steps: int = 0
    spec_drafted: int = 0
    spec_accepted: int = 0
    spec_sources: dict[str, dict[str, int]] = {}
    spec_hist: list[int] = []
    exact: bool = False
    busy_prefill_us: int = 0
    busy_decode_us: int = 0
    busy_draft_us: int = 0
    busy_grammar_us: int = 0
    grammar_cold: bool | None = None
    queue_ms: float | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    gateway_ms: float | None = None
    tool_calls: int = 0
    tool_calls_valid: int = 0
    tool_calls_dropped: int = 0
    cost_nusd: int | None = None
    cost_fresh_nusd: int | None = None
    cost_cached_nusd: int | None = None
    cost_out_nusd: int | None = None
    cost_formula: int = 0
    decision: dict[str, object] = {}
    price_version_id: int | None = None
    spec_window: str | None = None
    tool_calls_repaired: int | None = None
    redecoded_tok: int | None = None
    cache_write_tok: int | None = None
    cache_write_1h_tok: int | None = None
    tools_saved_chars: int | None = None
    cost_failed_nusd: int | None = None


class EndedRecord(RequestRecord, omit_defaults=True, tag="done", tag_field="t"):
    """A ``RequestRecord`` as the writer reads it from a journal: what goes into its row as JSON
    text is not taken apart."""

    spec_sources: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]
    decision: msgspec.Raw = msgspec.Raw(b"{}")  # type: ignore[assignment]
