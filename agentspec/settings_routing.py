"""Settings of routing: which of a model's backends a request goes to (docs/routing.md)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

Capability = Literal["tools", "images", "logprobs", "embeddings", "schema", "grammar", "suffix"]
"""What a request may need of a backend; "schema": that it holds ``response_format`` itself."""

PolicyName = Literal["fixed", "cheapest", "fastest", "slo", "learned"]
_More = Annotated[float, Meta(gt=0)]
_Money = Annotated[float, Meta(ge=0)]
_Count = Annotated[int, Meta(ge=0)]


class RoutingSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which of a model's backends a request goes to (docs/routing.md). One backend: no choice.

    policy: "fixed" (the configured order) or by predictions. shadow: a policy that is asked as
        well, logged and not followed.
    ttft_ms, tpot_ms: the latency target. target_share: how many requests "slo" wants to meet it.
    miss_usd: what a missed target, or a failed request, counts beside money, for "learned".
    exploration: the share of what requests cost that "learned" may spend on finding out.
    budget_usd_per_h: "learned" weighs money more while more than this is spent.
    half_life: of a measurement, in later ones of the same kind.
    cache_s: how long a session's prefix is taken to stay in a backend's cache.
    allow_keys, allow_kinds: the only backends for an API key (by id), for a kind of task.
    poll_s: between looks at the health and load of backends. learn_rows: rows read at the start.
    """

    policy: PolicyName = "fixed"
    shadow: PolicyName | None = None
    ttft_ms: _More = 4000.0
    tpot_ms: _More = 50.0
    target_share: Annotated[float, Meta(gt=0.0, lt=1.0)] = 0.9
    miss_usd: _Money = 0.05
    exploration: Annotated[float, Meta(gt=0.0, le=0.5)] = 0.01
    budget_usd_per_h: _Money | None = None
    half_life: Annotated[float, Meta(ge=1.0, le=1e6)] = 50.0
    cache_s: _More = 3600.0
    allow_keys: dict[str, list[str]] = {}
    allow_kinds: dict[str, list[str]] = {}
    poll_s: _More = 2.0
    learn_rows: _Count = 20_000

    def named(self) -> Iterator[tuple[str, str]]:
        """(where, backend) of every backend that these settings name."""
        for field in ("allow_keys", "allow_kinds"):
            for who, backends in getattr(self, field).items():
                yield from ((f"routing.{field}.{who}", backend) for backend in backends)


def is_http(url: str) -> bool:
    """Whether a backend may have that URL."""
    try:
        parts = urlsplit(url)
        _ = parts.port  # raises for one that is no number, or too large
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)
