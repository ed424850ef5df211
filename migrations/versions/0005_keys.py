"""Keys, projects, their limits, and what of those is used up or held by a gateway process."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def _text(name: str, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.Text(), nullable=null)


def _big(name: str, null: bool = False) -> sa.Column:
    return sa.Column(name, sa.BigInteger(), nullable=null)


def upgrade() -> None:
    op.create_table(
        "project",
        _text("name"),
        _big("created_ms"),
        sa.PrimaryKeyConstraint("name", name="pk_project"),
    )
    op.create_table(
        "api_key",
        _text("id"),
        _text("hash"),
        _text("old_hash", null=True),
        _big("old_until_ms", null=True),
        _text("name"),
        _text("project", null=True),
        _big("created_ms"),
        _big("expires_ms", null=True),
        _big("revoked_ms", null=True),
        _text("models", null=True),
        _text("cache_scope"),
        sa.Column("operator", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_api_key"),
    )
    op.create_index("ix_api_key_hash", "api_key", ["hash"], unique=True)
    op.create_index("ix_api_key_old_hash", "api_key", ["old_hash"], unique=True)
    op.create_index("ix_api_key_project", "api_key", ["project"])
    op.create_table(
        "key_limit",
        _text("owner"),
        _text("kind"),
        _big("amount"),
        sa.PrimaryKeyConstraint("owner", "kind", name="pk_key_limit"),
    )
    op.create_table(
        "key_epoch",
        _text("name"),
        _big("value"),
        sa.PrimaryKeyConstraint("name", name="pk_key_epoch"),
    )
    op.create_table(
        "limit_usage",
        _text("owner"),
        _text("kind"),
        _big("start_ms"),
        _big("used"),
        sa.PrimaryKeyConstraint("owner", "kind", "start_ms", name="pk_limit_usage"),
    )
    op.create_index("ix_limit_usage_kind_start_ms", "limit_usage", ["kind", "start_ms"])
    op.create_table(
        "limit_lease",
        _text("owner"),
        _text("kind"),
        _big("start_ms"),
        _text("holder"),
        _big("amount"),
        _big("expires_ms"),
        sa.PrimaryKeyConstraint("owner", "kind", "start_ms", "holder", name="pk_limit_lease"),
    )
    op.create_index("ix_limit_lease_expires_ms", "limit_lease", ["expires_ms"])


def downgrade() -> None:
    for table in ("limit_lease", "limit_usage", "key_epoch", "key_limit", "api_key", "project"):
        op.drop_table(table)
