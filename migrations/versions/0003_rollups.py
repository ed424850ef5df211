"""Rollups, sessions, tool calls and payloads; on PostgreSQL the requests in partitions by month.

The rollups are filled from the rows once all migrations are through: the row "rebuild" asks for it.
"""

from datetime import UTC, datetime

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

LEVELS = ("minute", "hour", "day")
SUMS = (
    *("requests", "unpriced", "decode_tok", "decode_us", "e2e_us", "in_tok", "cached_tok"),
    *("out_tok", "reason_tok", "forced_tok", "spec_steps", "spec_drafted", "spec_accepted"),
    *("busy_prefill_us", "busy_decode_us", "busy_draft_us", "busy_grammar_us", "tool_calls"),
    *("tool_calls_valid", "tool_calls_dropped", "cost_nusd", "cost_fresh_nusd"),
    *("cost_cached_nusd", "cost_out_nusd"),
)
DIMENSIONS = ("model", "backend", "workload", "status", "spec_arm", "key_id", "client")
SESSION_SUMS = (
    *("requests", "failed", "in_tok", "cached_tok", "out_tok", "spec_steps", "spec_drafted"),
    *("spec_accepted", "tool_calls", "tool_calls_valid", "cost_nusd", "e2e_us"),
)
INDEXES = {
    "ix_request_ts_ms": ("ts_ms",),
    "ix_request_session_id_ts_ms": ("session_id", "ts_ms"),
    "ix_request_key_id_ts_ms": ("key_id", "ts_ms"),
}


def _text(name: str) -> sa.Column:
    return sa.Column(name, sa.Text(), nullable=False)


def _big(name: str) -> sa.Column:
    return sa.Column(name, sa.BigInteger(), nullable=False)


def _small(name: str) -> sa.Column:
    return sa.Column(name, sa.SmallInteger(), nullable=False)


def upgrade() -> None:
    _rollups()
    _sessions()
    _calls_and_payloads()
    if op.get_bind().dialect.name == "postgresql":
        _partition()


def downgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        _unpartition()
    for level in LEVELS:
        op.drop_table(f"hist_{level}")
        op.drop_table(f"rollup_{level}")
    for name in ("rollup_dim", "rollup_session", "rollup_floor", "tool_call", "request_payload"):
        op.drop_table(name)


def _rollups() -> None:
    op.create_table(
        "rollup_dim",
        _big("id"),
        _small("cube"),
        *map(_text, DIMENSIONS),
        sa.PrimaryKeyConstraint("id", name="pk_rollup_dim"),
    )
    for level in LEVELS:
        op.create_table(
            f"rollup_{level}",
            *(_small("cube"), _big("bucket_ms"), _big("dim_id")),
            *map(_big, SUMS),
            sa.PrimaryKeyConstraint("cube", "bucket_ms", "dim_id", name=f"pk_rollup_{level}"),
            sqlite_with_rowid=False,
        )
        key = ("cube", "metric", "bucket_ms", "dim_id")
        op.create_table(
            f"hist_{level}",
            *(_small("cube"), _text("metric"), _big("bucket_ms"), _big("dim_id"), _text("counts")),
            sa.PrimaryKeyConstraint(*key, name=f"pk_hist_{level}"),
            sqlite_with_rowid=False,
        )
    floor = op.create_table(
        "rollup_floor",
        _text("what"),
        _big("since_ms"),
        sa.PrimaryKeyConstraint("what", name="pk_rollup_floor"),
    )
    op.bulk_insert(floor, [{"what": "rebuild", "since_ms": 0}])


def _sessions() -> None:
    op.create_table(
        "rollup_session",
        *(_text("session_id"), _text("key_id"), _big("first_ms"), _big("last_ms")),
        *(_text("client"), _text("model")),
        *map(_big, SESSION_SUMS),
        sa.PrimaryKeyConstraint("session_id", "key_id", name="pk_rollup_session"),
    )
    name = "ix_rollup_session_last_ms_first_ms"
    op.create_index(name, "rollup_session", ["last_ms", "first_ms"])


def _calls_and_payloads() -> None:
    op.create_table(
        "tool_call",
        *(_text("request_id"), sa.Column("idx", sa.Integer(), nullable=False), _big("ts_ms")),
        _text("name"),
        sa.Column("valid", sa.Boolean(), nullable=False),
        sa.Column("repaired", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("request_id", "idx", name="pk_tool_call"),
    )
    op.create_index("ix_tool_call_ts_ms", "tool_call", ["ts_ms"])
    partitioned = op.get_bind().dialect.name == "postgresql"
    key = ("request_id", "kind", "ts_ms") if partitioned else ("request_id", "kind")
    op.create_table(
        "request_payload",
        *(_text("request_id"), _text("kind"), _big("ts_ms"), _text("codec")),
        *(sa.Column("redacted", sa.Integer(), nullable=False), _big("plain_bytes")),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint(*key, name="pk_request_payload"),
        postgresql_partition_by="RANGE (ts_ms)",
    )
    op.create_index("ix_request_payload_ts_ms", "request_payload", ["ts_ms"])
    if partitioned:
        op.execute("CREATE TABLE request_payload_default PARTITION OF request_payload DEFAULT")


def _partition() -> None:
    op.execute("ALTER TABLE request RENAME TO request_whole")
    op.execute("ALTER TABLE request_whole DROP CONSTRAINT pk_request")
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    op.execute("CREATE TABLE request (LIKE request_whole) PARTITION BY RANGE (ts_ms)")
    op.execute("CREATE TABLE request_default PARTITION OF request DEFAULT")
    months = op.get_bind().execute(
        sa.text(
            "SELECT DISTINCT to_char(to_timestamp(ts_ms / 1000) AT TIME ZONE 'UTC', 'YYYYMM') "
            "FROM request_whole WHERE ts_ms BETWEEN :least AND :most"
        ),
        {"least": _start_ms(2020, 1), "most": _start_ms(2100, 1) - 1},
    )
    for (month,) in months.all():
        year, number = int(month[:4]), int(month[4:])
        since, until = _start_ms(year, number), _start_ms(year, number + 1)
        op.execute(
            f"CREATE TABLE request_p{month} PARTITION OF request "
            f"FOR VALUES FROM ({since}) TO ({until})"
        )
    _move("id, ts_ms")


def _unpartition() -> None:
    op.execute("ALTER TABLE request RENAME TO request_whole")
    op.execute("ALTER TABLE request_whole DROP CONSTRAINT pk_request")
    for name in INDEXES:
        op.execute(f"DROP INDEX {name}")
    op.execute("CREATE TABLE request (LIKE request_whole)")
    _move("id")


def _move(key: str) -> None:
    """Everything from ``request_whole``, which goes, into ``request``, which gets its indexes."""
    op.execute("INSERT INTO request SELECT * FROM request_whole")
    op.execute("DROP TABLE request_whole")
    op.execute(f"ALTER TABLE request ADD CONSTRAINT pk_request PRIMARY KEY ({key})")
    for name, columns in INDEXES.items():
        op.create_index(name, "request", list(columns))


def _start_ms(year: int, month: int) -> int:
    """The first millisecond (UTC) of a month; month 13 is the next year's first."""
    at = datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)
    return int(at.timestamp() * 1000)
