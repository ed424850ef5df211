"""Tokens a second over concurrency, a line a mode, as one SVG text: the cliff, or its absence."""

from __future__ import annotations

import math
from collections.abc import Sequence as Seq
from typing import Any
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 640, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 60, 110, 24, 48
_COLOURS = ("#888", "#c33", "#36c", "#2a2", "#a3a", "#c80", "#088", "#844", "#484", "#448", "#666")


def cliff(results: Seq[dict[str, Any]], value: str = "tok_s") -> str:
    """results: rows with ``mode``, ``concurrency`` and ``value``. Both axes start where data does;
    concurrency is drawn on a scale of powers of two."""
    lines: dict[str, list[tuple[float, float]]] = {}
    for row in sorted(results, key=lambda row: row["concurrency"]):
        at = math.log2(max(row["concurrency"], 1))
        lines.setdefault(row["mode"], []).append((at, row[value]))
    right = max(max(x for x, _ in points) for points in lines.values()) or 1.0
    top = 1.05 * max(max(y for _, y in points) for points in lines.values())
    body = [*_axes(right, top, value)]
    for (mode, points), colour in zip(lines.items(), _cycle(len(lines)), strict=True):
        body += _line(mode, points, colour, right, top)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11">{"".join(body)}</svg>\n'
    )


def _cycle(count: int) -> list[str]:
    return [_COLOURS[i % len(_COLOURS)] for i in range(count)]


def _place(x: float, y: float, right: float, top: float) -> tuple[float, float]:
    across = _LEFT + x / right * (_WIDTH - _LEFT - _RIGHT)
    down = _HEIGHT - _BOTTOM - y / top * (_HEIGHT - _TOP - _BOTTOM)
    return round(across, 1), round(down, 1)


def _line(
    mode: str, points: Seq[tuple[float, float]], colour: str, right: float, top: float
) -> list[str]:
    places = [_place(x, y, right, top) for x, y in points]
    path = " ".join(f"{x},{y}" for x, y in places)
    x, y = places[-1]
    wide = 3 if mode == "adaptive" else 1.5
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"/>',
        f'<text x="{x + 6}" y="{y + 4}" fill="{colour}">{escape(mode)}</text>',
    ]


def _axes(right: float, top: float, value: str) -> list[str]:
    parts = []
    for power in range(int(right) + 1):
        x, y = _place(power, 0, right, top)
        parts.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle">{2**power}</text>')
    for share in (0.0, 0.25, 0.5, 0.75, 1.0):
        x, y = _place(0, share * top, right, top)
        end = _WIDTH - _RIGHT
        parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="#ddd"/>')
        label = f"{share * top:.3g}"
        parts.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end">{label}</text>')
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{_HEIGHT - 12}" text-anchor="middle">concurrency</text>')
    parts.append(f'<text x="{_LEFT}" y="14">{escape(value)}</text>')
    return parts
