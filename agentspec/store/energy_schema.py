"""The table of energy readings: running totals of GPUs, as the hardware counts them."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Table, Text

from .schema import metadata

energy_reading = Table(
    "energy_reading",
    metadata,
    Column("device", Text, primary_key=True),
    Column("ts_ms", BigInteger, primary_key=True, autoincrement=False),
    Column("total_mj", BigInteger, nullable=False),
    Index(None, "ts_ms"),
)
"""device: the GPU's own name (UUID); total_mj: millijoules since its driver was loaded."""
