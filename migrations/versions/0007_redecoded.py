"""Tokens that were taken back and decoded again: NULL in rows from before, 0 in their sums.

So the sums need no rebuilding. Columns are dropped by ALTER TABLE on SQLite, too: a table made anew
by reflection would have a rowid, and lose its sums on the way.
"""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

ROLLUPS = ("rollup_minute", "rollup_hour", "rollup_day")


def upgrade() -> None:
    op.add_column("request", sa.Column("redecoded_tok", sa.BigInteger()))
    for table in ROLLUPS:
        column = sa.Column("redecoded_tok", sa.BigInteger(), nullable=False, server_default="0")
        op.add_column(table, column)


def downgrade() -> None:
    for table in ("request", *ROLLUPS):
        op.execute(f"ALTER TABLE {table} DROP COLUMN redecoded_tok")
