"""Characters that a prompt was spared by showing its tools in short: NULL in rows from before.

In the sums 0, so that they need no rebuilding.
"""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None

ROLLUPS = ("rollup_minute", "rollup_hour", "rollup_day")


def upgrade() -> None:
    op.add_column("request", sa.Column("tools_saved_chars", sa.BigInteger()))
    for table in ROLLUPS:
        column = sa.Column("tools_saved_chars", sa.BigInteger(), nullable=False, server_default="0")
        op.add_column(table, column)


def downgrade() -> None:
    for table in ("request", *ROLLUPS):
        op.execute(f"ALTER TABLE {table} DROP COLUMN tools_saved_chars")
