"""The tables of dated prices. A version, once entered, is never changed: a later one follows it.
One that nothing was billed by can be withdrawn; it stays without prices.

Prices are integer nano-USD per million tokens: exact for every price quoted to $0.000000001 per
million. NULL is a price that the source does not give.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, Table, Text

from .schema import metadata

price_version = Table(
    "price_version",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("source", Text, nullable=False),
    Column("valid_from_ms", BigInteger, nullable=False),
    Column("entered_ms", BigInteger, nullable=False),
    Index(None, "source", "valid_from_ms", unique=True),
)
"""id: 1, 2, ... in the order of entering."""

price = Table(
    "price",
    metadata,
    Column("version_id", Integer, primary_key=True, autoincrement=False),
    Column("model", Text, primary_key=True),
    Column("above_tok", Integer, primary_key=True, autoincrement=False),
    Column("in_nusd_per_m", BigInteger),
    Column("cached_nusd_per_m", BigInteger),
    Column("cache_write_nusd_per_m", BigInteger),
    Column("out_nusd_per_m", BigInteger),
    Column("reason_nusd_per_m", BigInteger),
    Column("cache_write_1h_nusd_per_m", BigInteger),
    Index(None, "model"),
)
"""above_tok: the row holds for requests with more input than this many tokens (0: for all)."""
