"""The pages that are made of blocks, by the last part of their path."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from agentspec.store.board import Look

from .cache_page import cache
from .context import Context
from .cost_page import cost
from .engines_page import engines
from .explore_page import explore
from .latency_page import latency_page
from .load_page import load
from .routing_page import routing
from .sessions_page import sessions_page
from .sheet import Sheet
from .speculation_page import speculation
from .structured_page import structured
from .view import View

Builder = Callable[[Look, View, Context], Sheet]

SHEETS: Mapping[str, Builder] = {
    "speculation": speculation,
    "load": load,
    "cost": cost,
    "latency": latency_page,
    "cache": cache,
    "structured": structured,
    "routing": routing,
    "sessions": sessions_page,
    "engines": engines,
    "explore": explore,
}

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "cost": ("at",),
    "latency": ("ttft_ms", "tpot_ms", "e2e_ms"),
    "sessions": ("after",),
    "explore": ("measure", "by", "then"),
}
"""What a page takes in its URL beside the range and the filters; others take nothing."""
