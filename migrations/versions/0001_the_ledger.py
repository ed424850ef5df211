"""The ledger: one row a request, and how far each journal was drained."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def _column(name: str, type_: sa.types.TypeEngine, null: bool = False) -> sa.Column:
    return sa.Column(name, type_, nullable=null)


COLUMNS = (
    _column("id", sa.Text()),
    _column("ts_ms", sa.BigInteger()),
    _column("surface", sa.Text()),
    _column("status", sa.Text()),
    _column("http_status", sa.Integer(), True),
    _column("error_type", sa.Text(), True),
    _column("error_code", sa.Text(), True),
    _column("finish_reason", sa.Text(), True),
    _column("model", sa.Text()),
    _column("upstream_model", sa.Text()),
    _column("backend", sa.Text()),
    _column("backend_kind", sa.Text()),
    _column("session_id", sa.Text()),
    _column("session_source", sa.Text()),
    _column("client", sa.Text()),
    _column("client_version", sa.Text()),
    _column("key_id", sa.Text()),
    _column("stream", sa.Boolean()),
    _column("n_messages", sa.Integer()),
    _column("n_tools", sa.Integer()),
    _column("tool_choice", sa.Text()),
    _column("response_format", sa.Text()),
    _column("workload", sa.Text()),
    _column("max_tokens", sa.BigInteger(), True),
    _column("max_tokens_clamped", sa.BigInteger(), True),
    _column("temperature", sa.Double(), True),
    _column("attempts", sa.Integer()),
    _column("in_tok", sa.BigInteger()),
    _column("cached_tok", sa.BigInteger()),
    _column("out_tok", sa.BigInteger()),
    _column("reason_tok", sa.BigInteger()),
    _column("forced_tok", sa.BigInteger()),
    _column("token_source", sa.Text()),
    _column("spec_arm", sa.Text(), True),
    _column("spec_steps", sa.BigInteger()),
    _column("spec_drafted", sa.BigInteger()),
    _column("spec_accepted", sa.BigInteger()),
    _column("spec_sources", sa.Text()),
    _column("spec_hist", sa.Text()),
    _column("exact", sa.Boolean()),
    _column("busy_prefill_us", sa.BigInteger()),
    _column("busy_decode_us", sa.BigInteger()),
    _column("busy_draft_us", sa.BigInteger()),
    _column("busy_grammar_us", sa.BigInteger()),
    _column("grammar_cold", sa.Boolean(), True),
    _column("queue_ms", sa.Double(), True),
    _column("ttft_ms", sa.Double(), True),
    _column("tpot_ms", sa.Double(), True),
    _column("e2e_ms", sa.Double(), True),
    _column("gateway_ms", sa.Double(), True),
    _column("tool_calls", sa.Integer()),
    _column("tool_calls_valid", sa.Integer()),
    _column("tool_calls_dropped", sa.Integer()),
    _column("cost_nusd", sa.BigInteger()),
    _column("cost_fresh_nusd", sa.BigInteger()),
    _column("cost_cached_nusd", sa.BigInteger()),
    _column("cost_out_nusd", sa.BigInteger()),
    _column("cost_formula", sa.Integer()),
    _column("decision", sa.Text()),
)


def upgrade() -> None:
    op.create_table("request", *COLUMNS, sa.PrimaryKeyConstraint("id", name="pk_request"))
    op.create_index("ix_request_ts_ms", "request", ["ts_ms"])
    op.create_index("ix_request_session_id_ts_ms", "request", ["session_id", "ts_ms"])
    op.create_index("ix_request_key_id_ts_ms", "request", ["key_id", "ts_ms"])
    op.create_table(
        "journal_offset",
        _column("journal", sa.Text()),
        _column("bytes", sa.BigInteger()),
        _column("updated_ms", sa.BigInteger()),
        sa.PrimaryKeyConstraint("journal", name="pk_journal_offset"),
    )


def downgrade() -> None:
    op.drop_table("journal_offset")
    op.drop_table("request")
