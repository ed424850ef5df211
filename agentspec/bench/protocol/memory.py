"""Memory headroom as far as anybody tells it. What isn't told is said to be unknown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .own import Own
from .verdict import KV_FULL, Point


def headroom(points: Sequence[Point], own: Own | None) -> dict[str, Any]:
    """kv_used_*: the most seen, by concurrency; kv_left: at the highest one."""
    drafted = {point.concurrency: point.drafted.kv_used for point in points}
    plain = {point.concurrency: point.plain.kv_used for point in points if point.plain}
    last = drafted[points[-1].concurrency]
    found: dict[str, Any] = {
        "kv_used_drafted": drafted,
        "kv_used_plain": plain,
        "kv_left": None if last is None else 1.0 - last,
    }
    if own is not None:
        found["rss_mib"], found["peak_mib"] = own.memory_mib()
    found["said"] = _said(points[-1].concurrency, last, found)
    return found


def _said(concurrency: int, used: float | None, found: dict[str, Any]) -> list[str]:
    lines = []
    if used is None:
        lines.append("K/V memory in use: unknown, the endpoint's metrics don't tell.")
    else:
        room = "no headroom" if used > KV_FULL else f"{1.0 - used:.0%} left"
        lines.append(f"K/V memory in use at {concurrency}: {used:.1%} at most, {room}.")
    if "rss_mib" in found:
        lines.append(
            f"The engine's process holds {found['rss_mib']:.0f} MiB, at most "
            f"{found['peak_mib']:.0f} MiB so far (both arms and its drafts in one process)."
        )
    else:
        lines.append("Memory of weights and draft: unknown, an endpoint doesn't tell it.")
    return lines
