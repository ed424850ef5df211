"""What routing learns from when a gateway starts: the newest finished requests, oldest first."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, select
from sqlalchemy.exc import SQLAlchemyError

from .connection import reading
from .reader import LedgerUnavailable
from .record import RequestRecord
from .schema import request

_WANTED = (
    *("id", "ts_ms", "status", "http_status", "finish_reason", "model", "upstream_model"),
    *(
        "backend",
        "key_id",
        "session_id",
        "client",
        "workload",
        "in_tok",
        "cached_tok",
        "out_tok",
        "spec_steps",
    ),
    *("spec_accepted", "ttft_ms", "tpot_ms", "e2e_ms", "tool_calls", "tool_calls_valid"),
    *("tool_calls_dropped", "cost_fresh_nusd", "cost_cached_nusd", "cost_out_nusd", "decision"),
)


def read_history(url: str, count: int, models: tuple[str, ...] = ()) -> list[RequestRecord]:
    """``history`` of the ledger at ``url``. Raises ``StoreError`` where it can't be read."""
    try:
        with reading(url) as connection:
            return history(connection, count, models)
    except SQLAlchemyError as error:
        reason = getattr(error, "orig", None) or error
        raise LedgerUnavailable(f"the ledger's database does not answer: {reason}") from error


def history(
    connection: Connection, count: int, models: tuple[str, ...] = ()
) -> list[RequestRecord]:
    """At most ``count`` requests that a backend took, of these models (none: of all). Only the
    columns that routing looks at are filled in."""
    query = select(*(request.c[name] for name in _WANTED)).where(request.c.backend != "")
    if models:
        query = query.where(request.c.model.in_(models))
    query = query.order_by(request.c.ts_ms.desc()).limit(count)
    found = [_record(dict(row)) for row in connection.execute(query).mappings()]
    return found[::-1]


def _record(fields: dict[str, object]) -> RequestRecord:
    decision = fields["decision"]
    fields["decision"] = msgspec.json.decode(decision) if isinstance(decision, str) else {}
    return RequestRecord(**fields)  # type: ignore[arg-type]
