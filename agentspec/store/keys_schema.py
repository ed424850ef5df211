"""Tables of keys and limits: who may use the gateway, how much of it, and how much is used up.

Written by ``agentspec keys`` and by every gateway process; no part of the ledger. An ``owner`` is
``key:ID`` or ``project:NAME``; ``kind`` is one of ``budgets.KINDS``; amounts are in its unit.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Table, Text

from .schema import metadata

project = Table(
    "project",
    metadata,
    Column("name", Text, primary_key=True),
    Column("created_ms", BigInteger, nullable=False),
)
"""A group of keys that share limits, and perhaps a cache scope."""

api_key = Table(
    "api_key",
    metadata,
    Column("id", Text, primary_key=True),
    Column("hash", Text, nullable=False),
    Column("old_hash", Text),
    Column("old_until_ms", BigInteger),
    Column("name", Text, nullable=False),
    Column("project", Text),
    Column("created_ms", BigInteger, nullable=False),
    Column("expires_ms", BigInteger),
    Column("revoked_ms", BigInteger),
    Column("models", Text),
    Column("cache_scope", Text, nullable=False),
    Column("operator", Boolean, nullable=False),
    Index(None, "hash", unique=True),
    Index(None, "old_hash", unique=True),
    Index(None, "project"),
)
"""hash: SHA-256 of the secret, hex; old_hash: of the one before, good until old_until_ms. models: a
JSON list, NULL for all. cache_scope: "key" or "project". operator: may open the dashboard."""

key_limit = Table(
    "key_limit",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
)
"""What an owner may use in a period of that kind."""

key_epoch = Table(
    "key_epoch",
    metadata,
    Column("name", Text, primary_key=True),
    Column("value", BigInteger, nullable=False),
)
"""One row, "keys": grows with every change to the tables above, so that gateways see it soon."""

limit_usage = Table(
    "limit_usage",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("start_ms", BigInteger, primary_key=True),
    Column("used", BigInteger, nullable=False),
    Index(None, "kind", "start_ms"),
)
"""What was used up in the period that began at start_ms (0: one without a beginning)."""

limit_lease = Table(
    "limit_lease",
    metadata,
    Column("owner", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("start_ms", BigInteger, primary_key=True),
    Column("holder", Text, primary_key=True),
    Column("amount", BigInteger, nullable=False),
    Column("expires_ms", BigInteger, nullable=False),
    Index(None, "expires_ms"),
)
"""The slice of a limit that a gateway process holds: in flight there, or free to be taken there."""
