"""How large each client's first request is: ``measured.json``, written by ``make test-clients``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

FILE = Path(__file__).with_name("measured.json")


class Measured(msgspec.Struct, frozen=True):
    """One client's first request that holds its task, in tokens of the embedded model.

    full_tokens: as sent. short_tokens: with the tools in the short form that small contexts get.
    turns: requests of the scripted task (read, edit, run, finish).
    """

    version: str
    full_tokens: int
    short_tokens: int
    turns: int


@cache
def measured() -> dict[str, Measured]:
    """By client; a client that was never run is missing."""
    return msgspec.json.decode(FILE.read_bytes(), type=dict[str, Measured])
