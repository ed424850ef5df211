"""The price map that litellm ships, read from its file: litellm itself is not imported for it.

Prices are USD per token there. Long prompts may have prices of their own, in keys that end
``_above_200k_tokens``; other tariffs (batch, flex, priority, audio, images, tools) are left out.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from agentspec.wire.errors import AgentspecError

FILE = "model_prices_and_context_window_backup.json"
KINDS = {
    "input_cost_per_token": "input",
    "cache_read_input_token_cost": "cached",
    "cache_creation_input_token_cost": "cache_write",
    "cache_creation_input_token_cost_above_1hr": "cache_write_1h",
    "output_cost_per_token": "output",
    "output_cost_per_reasoning_token": "reasoning",
}
_TIER = re.compile(r"(?P<key>.+)_above_(?P<thousands>\d+)k_tokens")


class NoPriceMap(AgentspecError):
    """litellm is not installed, or has no price map."""

    type = "server_error"
    code = "no_price_map"


@dataclass(frozen=True, slots=True)
class PriceMap:
    """usd_per_token[model][above_tok][kind]: kinds are the values of ``KINDS``, one that is missing
    is not known. version: of litellm.
    """

    version: str
    usd_per_token: Mapping[str, Mapping[int, Mapping[str, Decimal]]]


def read() -> PriceMap:
    """The installed litellm's map. Raises ``NoPriceMap``."""
    found = importlib.util.find_spec("litellm")
    if found is None or found.origin is None:
        raise NoPriceMap("litellm is not installed: there is no map to import")
    path = Path(found.origin).parent / FILE
    try:
        models = json.loads(path.read_bytes(), parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise NoPriceMap(f"litellm's price map {path} cannot be read: {error}") from None
    return PriceMap(importlib.metadata.version("litellm"), parse(models))


def parse(models: Mapping[str, Any]) -> dict[str, dict[int, dict[str, Decimal]]]:
    """The token prices of a map; models without any, and litellm's example, are left out."""
    priced = {}
    for model, entry in models.items():
        tiers = _tiers(entry) if model != "sample_spec" and isinstance(entry, dict) else {}
        if tiers:
            priced[model] = tiers
    return priced


def _tiers(entry: Mapping[str, Any]) -> dict[int, dict[str, Decimal]]:
    """Prices by the prompt length above which they hold, each tier complete."""
    tiers: dict[int, dict[str, Decimal]] = {}
    for name, value in entry.items():
        tier = _TIER.fullmatch(name)
        key, above = (tier["key"], int(tier["thousands"]) * 1000) if tier else (name, 0)
        if key in KINDS and isinstance(value, int | Decimal) and not isinstance(value, bool):
            tiers.setdefault(above, {})[KINDS[key]] = Decimal(value)
    below: dict[str, Decimal] = {}
    for above in sorted(tiers):
        below = tiers[above] = {**below, **tiers[above]}
    return {above: tiers[above] for above in sorted(tiers)}
