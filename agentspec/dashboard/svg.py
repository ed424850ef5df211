"""Drawing: SVG elements as text, and the scales of an axis.

A drawing has no viewBox: x is given in per cent of the width and y in pixels, so that a chart
follows its column's width while its text keeps its size. Colours are classes (see dashboard.css):
the pages' policy allows no style in the markup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

HEIGHT = 208
TOP, BOTTOM = 12, 180
"""The plot's upper and lower edge, pixels; the labels of the x axis stand below."""
LEFT, RIGHT = 11.0, 99.5
"""The plot's edges, per cent of the width; the labels of the y axis stand left of it."""


def tag(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """One element. ``class_`` is class, other underscores are hyphens; text is escaped."""
    pairs = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(escape(child) for child in children)
    return Markup(f"<{name}{pairs}>{inside}</{name}>")


def percent(value: float) -> str:
    return f"{_plain(value)}%"


def drawing(label: str, *children: Markup, height: int = HEIGHT) -> Markup:
    """The whole picture. ``label`` says to those who do not see it what it shows."""
    return tag(
        "svg", *children, class_="chart", width="100%", height=height, role="img", aria_label=label
    )


def ticks(highest: float, count: int = 4, whole: bool = False) -> list[float]:
    """Round numbers from 0 to at least ``highest``, about ``count`` steps. ``whole``: integers."""
    if highest <= 0:
        return [0.0, 1.0]
    rough = max(highest / count, 1 if whole else 0)
    power = 10 ** math.floor(math.log10(rough))
    steps = [m * power for m in (1, 2, 2.5, 5, 10) if not whole or m * power == int(m * power)]
    step = next(step for step in steps if step >= rough * 0.999)
    return [i * step for i in range(max(1, math.ceil(highest / step - 1e-9)) + 1)]


@dataclass(frozen=True, slots=True)
class YAxis:
    """Values to pixels: 0 at the bottom, the last tick at the top."""

    ticks: list[float]
    text: Callable[[float], str]

    def y(self, value: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * value / self.ticks[-1]

    def draw(self) -> Iterable[Markup]:
        for value in self.ticks:
            y = self.y(value)
            kind = "grid" if value else "base"
            yield tag("line", class_=kind, x1=percent(LEFT), x2=percent(RIGHT), y1=y, y2=y)
            yield tag("text", self.text(value), class_="y", x=percent(LEFT - 1.2), y=y, dy="0.32em")


def x_label(text: str, at: float, *, minor: bool) -> Markup:
    """A label below the plot, centred on ``at`` (per cent)."""
    return tag("text", text, class_="x minor" if minor else "x", x=percent(at), y=BOTTOM + 18)


def _plain(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
