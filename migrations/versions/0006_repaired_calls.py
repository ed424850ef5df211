"""How many tool calls of a request were mended; NULL in rows from before."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("request", sa.Column("tool_calls_repaired", sa.Integer()))


def downgrade() -> None:
    with op.batch_alter_table("request") as table:
        table.drop_column("tool_calls_repaired")
