"""Dated prices, energy readings; a cost may be unknown; whether the engine speculated."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

COSTS = ("cost_nusd", "cost_fresh_nusd", "cost_cached_nusd", "cost_out_nusd")


def upgrade() -> None:
    op.create_table(
        "price_version",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("source", sa.Text(), nullable=False),
        sa.Column("valid_from_ms", sa.BigInteger(), nullable=False),
        sa.Column("entered_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_price_version"),
    )
    op.create_index(
        "ix_price_version_source_valid_from_ms",
        "price_version",
        ["source", "valid_from_ms"],
        unique=True,
    )
    op.create_table(
        "price",
        sa.Column("version_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("model", sa.Text(), nullable=False),
        sa.Column("above_tok", sa.Integer(), autoincrement=False, nullable=False),
        *(
            sa.Column(f"{kind}_nusd_per_m", sa.BigInteger())
            for kind in ("in", "cached", "cache_write", "out", "reason")
        ),
        sa.PrimaryKeyConstraint("version_id", "model", "above_tok", name="pk_price"),
    )
    op.create_index("ix_price_model", "price", ["model"])
    op.create_table(
        "energy_reading",
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("ts_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("total_mj", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("device", "ts_ms", name="pk_energy_reading"),
    )
    op.create_index("ix_energy_reading_ts_ms", "energy_reading", ["ts_ms"])
    with op.batch_alter_table("request") as table:
        for name in COSTS:
            table.alter_column(name, existing_type=sa.BigInteger(), nullable=True)
        table.add_column(sa.Column("price_version_id", sa.Integer()))
        table.add_column(sa.Column("spec_window", sa.Text()))


def downgrade() -> None:
    """An older agentspec knows no unknown cost: those become 0, as they were with it."""
    for name in COSTS:
        op.execute(f"UPDATE request SET {name} = 0 WHERE {name} IS NULL")
    with op.batch_alter_table("request") as table:
        table.drop_column("spec_window")
        table.drop_column("price_version_id")
        for name in COSTS:
            table.alter_column(name, existing_type=sa.BigInteger(), nullable=False)
    op.drop_table("energy_reading")
    op.drop_table("price")
    op.drop_table("price_version")
