"""What calls cost that failed before the last one, and sums of tokens written to a vendor's cache.

Rows from before tell nothing of the first (NULL). Of the second, rollups are made anew where a row
has any. Columns are dropped by ALTER TABLE on SQLite, too: a table made anew by reflection would
have a rowid, and lose its sums on the way.
"""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None

ROLLUPS = ("rollup_minute", "rollup_hour", "rollup_day")
SUMS = ("cost_failed_nusd", "cache_write_tok", "cache_write_1h_tok")
WRITTEN = "SELECT 1 FROM request WHERE cache_write_tok > 0 LIMIT 1"


def upgrade() -> None:
    op.add_column("request", sa.Column("cost_failed_nusd", sa.BigInteger()))
    for table in ROLLUPS:
        for name in SUMS:
            column = sa.Column(name, sa.BigInteger(), nullable=False, server_default="0")
            op.add_column(table, column)
    if op.get_bind().scalar(sa.text(WRITTEN)):
        op.execute(
            "INSERT INTO rollup_floor (what, since_ms) VALUES ('rebuild', 0) ON CONFLICT DO NOTHING"
        )


def downgrade() -> None:
    op.execute("ALTER TABLE request DROP COLUMN cost_failed_nusd")
    for table in ROLLUPS:
        for name in SUMS:
            op.execute(f"ALTER TABLE {table} DROP COLUMN {name}")
