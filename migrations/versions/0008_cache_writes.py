"""Tokens written to a vendor's cache, and the price of a write that lasts an hour."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

COLUMNS = (
    ("request", "cache_write_tok"),
    ("request", "cache_write_1h_tok"),
    ("price", "cache_write_1h_nusd_per_m"),
)


def upgrade() -> None:
    for table, name in COLUMNS:
        op.add_column(table, sa.Column(name, sa.BigInteger()))


def downgrade() -> None:
    for table, name in COLUMNS:
        op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
