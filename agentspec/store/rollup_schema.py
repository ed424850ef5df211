"""The rollups' tables: sums and histograms of ``request`` by minute, hour and day.

A cell is one bucket of time of one combination of properties (a row of ``rollup_dim``). There are
two cubes of cells, so that neither needs every combination of both sides:

    PLACE  model, backend, workload, status, spec_arm    by minute, hour and day
    KEY    key_id, client, model, backend, status        by hour and day

Every column but the keys is a sum of integers over rows, hence sums of cells are exact and cells
are added to in any order. Averages and percentiles are never stored.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, SmallInteger, Table, Text

from .schema import metadata

PLACE, KEY = 0, 1

CUBES: dict[int, tuple[str, ...]] = {
    PLACE: ("model", "backend", "workload", "status", "spec_arm"),
    KEY: ("key_id", "client", "model", "backend", "status"),
}
"""The columns of ``request`` that tell cells apart; an unknown one (NULL) is the empty text."""

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
LEVELS = {"day": DAY_MS, "hour": HOUR_MS, "minute": MINUTE_MS}
"""Coarsest first; each is a whole multiple of the next."""

CUBE_LEVELS = {PLACE: ("day", "hour", "minute"), KEY: ("day", "hour")}

PLAIN = (
    "in_tok",
    "cached_tok",
    "out_tok",
    "reason_tok",
    "forced_tok",
    "spec_steps",
    "spec_drafted",
    "spec_accepted",
    "busy_prefill_us",
    "busy_decode_us",
    "busy_draft_us",
    "busy_grammar_us",
    "tool_calls",
    "tool_calls_valid",
    "tool_calls_dropped",
    "cost_nusd",
    "cost_fresh_nusd",
    "cost_cached_nusd",
    "cost_out_nusd",
    "redecoded_tok",
    "tools_saved_chars",
    "cost_failed_nusd",
    "cache_write_tok",
    "cache_write_1h_tok",
)
"""Columns of ``request`` that are summed as they are, NULL as 0."""

DERIVED = ("requests", "unpriced", "decode_tok", "decode_us", "e2e_us")
"""requests: rows; unpriced: rows whose cost is NULL. decode_tok: tokens after the first, of rows
that ended well with two tokens or more, TTFT and time per token known; decode_us: the time these
took, whole microseconds. e2e_us: of rows with a known end."""

SUMS = (*DERIVED, *PLAIN)

METRICS = ("ttft", "tpot", "e2e", "queue", "accepted")
"""Histograms: of ``ttft_ms`` and so on (bins: ``histogram.bin_of``), and of ``spec_hist`` (bin j:
verification steps that accepted exactly j drafted tokens)."""

rollup_dim = Table(
    "rollup_dim",
    metadata,
    Column("id", BigInteger, primary_key=True, autoincrement=False),
    Column("cube", SmallInteger, nullable=False),
    *(
        Column(name, Text, nullable=False)
        for name in ("model", "backend", "workload", "status", "spec_arm", "key_id", "client")
    ),
)
"""What tells cells apart. ``id`` is a hash of the other columns: whoever meets a combination knows
its id without asking."""


def _cell(*keys: Column) -> list[Column]:
    """The key of a cell. By time first: new cells come at one end, old ones go together."""
    bucket = Column("bucket_ms", BigInteger, primary_key=True, autoincrement=False)
    dim = Column("dim_id", BigInteger, primary_key=True, autoincrement=False)
    cube = Column("cube", SmallInteger, primary_key=True, autoincrement=False)
    return [cube, *keys, bucket, dim]


def _sums(level: str) -> Table:
    columns = [Column(name, BigInteger, nullable=False) for name in SUMS]
    return Table(f"rollup_{level}", metadata, *_cell(), *columns, sqlite_with_rowid=False)


def _counts(level: str) -> Table:
    """``counts``: JSON {bin: rows}, bins without rows left out."""
    key = Column("metric", Text, primary_key=True)
    counts = Column("counts", Text, nullable=False)
    return Table(f"hist_{level}", metadata, *_cell(key), counts, sqlite_with_rowid=False)


rollup = {level: _sums(level) for level in LEVELS}
hist = {level: _counts(level) for level in LEVELS}

SESSION_SUMS = (
    "requests",
    "failed",
    "in_tok",
    "cached_tok",
    "out_tok",
    "spec_steps",
    "spec_drafted",
    "spec_accepted",
    "tool_calls",
    "tool_calls_valid",
    "cost_nusd",
    "e2e_us",
)

rollup_session = Table(
    "rollup_session",
    metadata,
    Column("session_id", Text, primary_key=True),
    Column("key_id", Text, primary_key=True),
    Column("first_ms", BigInteger, nullable=False),
    Column("last_ms", BigInteger, nullable=False),
    Column("client", Text, nullable=False),
    Column("model", Text, nullable=False),
    *(Column(name, BigInteger, nullable=False) for name in SESSION_SUMS),
    Index(None, "last_ms", "first_ms"),
)
"""One row a named session of one key: sums over all of its requests; client and model are those
of one of them."""

rollup_floor = Table(
    "rollup_floor",
    metadata,
    Column("what", Text, primary_key=True),
    Column("since_ms", BigInteger, nullable=False),
)
"""From when on something is complete: "request", "payload", or a level. No row: from the start.
The row "rebuild" says that the rollups are to be made anew."""
