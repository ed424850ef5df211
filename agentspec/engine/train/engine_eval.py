"""The part of ``draft eval`` that generates: the draft in our engine, beside plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .config import DraftToml
from .errors import TrainError
from .feature_cache import Entry
from .teacher import Opened


def generate(toml: DraftToml, opened: Opened, entries: Sequence[Entry]) -> dict[str, Any]:
    """Raises ``TrainError`` where this engine can't run the draft."""
    raise TrainError("--engine: this version's engine loads no trained draft")
