"""Answers that clients of Responses refer to, kept for a while for all gateway workers."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "kept_answer",
        sa.Column("scope", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("value", sa.LargeBinary(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("scope", "name", name="pk_kept_answer"),
    )
    op.create_index("ix_kept_answer_expires_ms", "kept_answer", ["expires_ms"])


def downgrade() -> None:
    op.drop_table("kept_answer")
