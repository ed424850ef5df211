"""A heat map: a share at each crossing of two lists of names."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from . import text
from .svg import drawing, percent, tag

_LEFT, _HEAD, _ROW = 22.0, 26, 34
"""Room for the rows' names (per cent of the width), for the columns' names, for a row (pixels)."""


def heat(
    label: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float | None]],
) -> Markup:
    """values[row][column]: a share of 1, or None where nothing is known: left blank."""
    width = (100 - _LEFT) / max(len(columns), 1)
    parts = [
        tag("text", name, class_="x", x=percent(_LEFT + (i + 0.5) * width), y=16)
        for i, name in enumerate(columns)
    ]
    for r, name in enumerate(rows):
        y = _HEAD + r * _ROW
        parts.append(tag("text", name, class_="y", x=percent(_LEFT - 1.5), y=y + 21))
        for c, value in enumerate(values[r]):
            parts.append(_cell(f"{name}, {columns[c]}", value, _LEFT + c * width, width, y))
    return drawing(label, *parts, height=_HEAD + _ROW * len(rows) + 4)


def _cell(name: str, value: float | None, x: float, width: float, y: int) -> Markup:
    told = text.share(value)
    place = {"x": percent(x), "y": y, "width": percent(width * 0.98), "height": _ROW - 3, "rx": 4}
    strength = 0.04 if value is None else 0.1 + 0.5 * value
    middle = percent(x + width / 2)
    return tag(
        "g",
        tag("title", f"{name}: {told}"),
        tag("rect", class_="heat c-accept", fill_opacity=strength, **place),
        tag("text", told, class_="x ink", x=middle, y=y + 21),
    )
