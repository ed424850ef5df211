"""The ledger's tables (SQLAlchemy Core), the same on SQLite and PostgreSQL.

``ts_ms`` is milliseconds UTC, ``*_nusd`` nano-USD, ``*_tok`` tokens, ``*_us`` microseconds. JSON
lies in text columns. No trigger, generated column or expression index: alembic's batch mode on
SQLite rebuilds a table by reflection and would lose them silently.
"""

from __future__ import annotations

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
)

REVISION = "0010"
"""The newest migration; a database at any other revision is not touched."""

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _text(name: str, *, null: bool = False) -> Column:
    return Column(name, Text, nullable=null)


def _int(name: str, *, null: bool = False) -> Column:
    return Column(name, Integer, nullable=null)


def _big(name: str, *, null: bool = False) -> Column:
    return Column(name, BigInteger, nullable=null)


def _real(name: str, *, null: bool = True) -> Column:
    return Column(name, Double, nullable=null)


def _bool(name: str, *, null: bool = False) -> Column:
    return Column(name, Boolean, nullable=null)


request = Table(
    "request",
    metadata,
    Column("id", Text, primary_key=True),
    _big("ts_ms"),
    _text("surface"),
    _text("status"),
    _int("http_status", null=True),
    _text("error_type", null=True),
    _text("error_code", null=True),
    _text("finish_reason", null=True),
    _text("model"),
    _text("upstream_model"),
    _text("backend"),
    _text("backend_kind"),
    _text("session_id"),
    _text("session_source"),
    _text("client"),
    _text("client_version"),
    _text("key_id"),
    _bool("stream"),
    _int("n_messages"),
    _int("n_tools"),
    _text("tool_choice"),
    _text("response_format"),
    _text("workload"),
    _big("max_tokens", null=True),
    _big("max_tokens_clamped", null=True),
    _real("temperature"),
    _int("attempts"),
    _big("in_tok"),
    _big("cached_tok"),
    _big("out_tok"),
    _big("reason_tok"),
    _big("forced_tok"),
    _text("token_source"),
    _text("spec_arm", null=True),
    _big("spec_steps"),
    _big("spec_drafted"),
    _big("spec_accepted"),
    _text("spec_sources"),
    _text("spec_hist"),
    _bool("exact"),
    _big("busy_prefill_us"),
    _big("busy_decode_us"),
    _big("busy_draft_us"),
    _big("busy_grammar_us"),
    _bool("grammar_cold", null=True),
    _real("queue_ms"),
    _real("ttft_ms"),
    _real("tpot_ms"),
    _real("e2e_ms"),
    _real("gateway_ms"),
    _int("tool_calls"),
    _int("tool_calls_valid"),
    _int("tool_calls_dropped"),
    _big("cost_nusd", null=True),
    _big("cost_fresh_nusd", null=True),
    _big("cost_cached_nusd", null=True),
    _big("cost_out_nusd", null=True),
    _int("cost_formula"),
    _text("decision"),
    _int("price_version_id", null=True),
    _text("spec_window", null=True),
    _int("tool_calls_repaired", null=True),
    _big("redecoded_tok", null=True),
    _big("cache_write_tok", null=True),
    _big("cache_write_1h_tok", null=True),
    _big("tools_saved_chars", null=True),
    _big("cost_failed_nusd", null=True),
    Index(None, "ts_ms"),
    Index(None, "session_id", "ts_ms"),
    Index(None, "key_id", "ts_ms"),
)
"""One row a request, never updated: the fields of ``record.RequestRecord`` in their order. Only a
row ``lost`` gives way, to the request's end that turned up later. On PostgreSQL the table is
partitioned by month of ``ts_ms``, which its primary key there also holds; ``store.partition``."""

journal_offset = Table(
    "journal_offset",
    metadata,
    Column("journal", Text, primary_key=True),
    _big("bytes"),
    _big("updated_ms"),
)
"""How far each journal file was drained; committed together with the rows it yielded."""

tool_call = Table(
    "tool_call",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("idx", Integer, primary_key=True, autoincrement=False),
    _big("ts_ms"),
    _text("name"),
    _bool("valid"),
    _bool("repaired"),
    Index(None, "ts_ms"),
)
"""One row a call that an answer made, in the answer's order; ``record.CallRecord``."""

request_payload = Table(
    "request_payload",
    metadata,
    Column("request_id", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    _big("ts_ms"),
    _text("codec"),
    _int("redacted"),
    _big("plain_bytes"),
    Column("body", LargeBinary, nullable=False),
    Index(None, "ts_ms"),
)
"""What was asked and answered, where ``store.payloads`` says so; ``store.payload`` reads it."""

kept_answer = Table(
    "kept_answer",
    metadata,
    Column("scope", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("value", LargeBinary, nullable=False),
    _big("expires_ms"),
    Index(None, "expires_ms"),
)
"""Answers and their items that Responses clients may refer to, by opt-in; ``store.answers``."""
