"""The kinds of chart over columns: bars (stacked, or side by side) and curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from .svg import BOTTOM, LEFT, RIGHT, TOP, YAxis, drawing, percent, tag, ticks, x_label
from .text import UNKNOWN

NARROW_PX, LETTER_PX, MARGIN_PX = 310, 6, 14
"""A drawing's width on a telephone, a letter's of a label, and the room beside the drawing."""


@dataclass(frozen=True, slots=True)
class Layer:
    """One kind of thing in a chart: its name, its colour class, a value per column."""

    name: str
    color: str
    values: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Columns:
    """The x axis: each column's title, and the label below it or ""."""

    titles: Sequence[str]
    labels: Sequence[str]

    def __len__(self) -> int:
        return len(self.titles)

    def left(self, index: float) -> float:
        """The left edge of a column, per cent of the width."""
        return LEFT + (RIGHT - LEFT) * index / max(len(self), 1)

    @property
    def width(self) -> float:
        return (RIGHT - LEFT) / max(len(self), 1)


def stacked(
    label: str,
    columns: Columns,
    layers: Sequence[Layer],
    text: Callable[[float], str],
    *,
    whole: bool = False,
) -> Markup:
    """Bars whose layers stand on each other, the first at the bottom. ``text`` formats a value."""
    sums = [sum(values) for values in zip(*(layer.values for layer in layers), strict=True)]
    axis = YAxis(ticks(max(sums, default=0), whole=whole), text)
    parts = list(axis.draw())
    for index in range(len(columns)):
        bars, below = [], 0.0
        for layer in layers:
            value = layer.values[index]
            if value:
                x, width = columns.left(index + 0.12), columns.width * 0.76
                bars.append(_bar(axis, x, width, below, below + value, layer.color))
            below += value
        parts.append(_column(columns, index, layers, text, bars))
    return drawing(label, *parts, *_x_labels(columns))


def grouped(
    label: str,
    columns: Columns,
    layers: Sequence[Layer],
    text: Callable[[float], str],
    *,
    whole: bool = False,
) -> Markup:
    """Bars of the layers side by side in each column."""
    highest = max((v for layer in layers for v in layer.values), default=0)
    axis = YAxis(ticks(highest, whole=whole), text)
    parts = list(axis.draw())
    width = columns.width * 0.84 / len(layers)
    for index in range(len(columns)):
        start = columns.left(index + 0.08)
        bars = [
            _bar(axis, start + i * width, width * 0.94, 0, layer.values[index], layer.color)
            for i, layer in enumerate(layers)
            if layer.values[index]
        ]
        parts.append(_column(columns, index, layers, text, bars))
    return drawing(label, *parts, *_x_labels(columns))


def curve(
    label: str,
    columns: Columns,
    layer: Layer,
    text: Callable[[float], str],
    *,
    highest: float | None = None,
) -> Markup:
    """One line through the columns' centres; as ``curves``."""
    return curves(label, columns, [layer], text, highest=highest)


def curves(
    label: str,
    columns: Columns,
    layers: Sequence[Layer],
    text: Callable[[float], str],
    *,
    highest: float | None = None,
) -> Markup:
    """Lines through the columns' centres, broken where a value is None.

    ``highest``: the upper end of the y axis; None: what the values need.
    """
    values = [value or 0 for layer in layers for value in layer.values]
    axis = YAxis(ticks(highest if highest is not None else max(values, default=0)), text)
    kind, radius = ("dot", 4) if len(columns) <= 20 else ("dot small", 2)
    parts = list(axis.draw())
    dots: list[list[Markup]] = [[] for _ in range(len(columns))]
    for layer in layers:
        points = [
            None if value is None else (columns.left(i + 0.5), axis.y(value))
            for i, value in enumerate(layer.values)
        ]
        for a, b in zip(points, points[1:], strict=False):
            if a and b:
                ends = {"x1": percent(a[0]), "y1": a[1], "x2": percent(b[0]), "y2": b[1]}
                parts.append(tag("line", class_=f"curve {layer.color}", **ends))
        for index, point in enumerate(points):
            if point:
                at = {"cx": percent(point[0]), "cy": point[1], "r": radius}
                dots[index].append(tag("circle", class_=f"{kind} {layer.color}", **at))
    for index, marks in enumerate(dots):
        if marks:
            parts.append(_column(columns, index, layers, text, marks))
    return drawing(label, *parts, *_x_labels(columns))


def _bar(axis: YAxis, x: float, width: float, low: float, high: float, color: str) -> Markup:
    top, bottom = axis.y(high), axis.y(low)
    # A value too small to see is still drawn: something is not nothing.
    height = max(bottom - top, 1.0)
    return tag(
        "rect",
        class_=f"bar {color}",
        x=percent(x),
        width=percent(width),
        y=bottom - height,
        height=height,
    )


def _column(
    columns: Columns,
    index: int,
    layers: Sequence[Layer],
    text: Callable[[float], str],
    marks: Sequence[Markup],
) -> Markup:
    """A column's marks with what the pointer is told over it."""
    told = [(layer.name, layer.values[index]) for layer in layers]
    values = [f"{name}: {UNKNOWN if value is None else text(value)}" for name, value in told]
    return tag(
        "g",
        tag("title", "\n".join([columns.titles[index], *values])),
        tag(
            "rect",
            class_="hit",
            x=percent(columns.left(index)),
            width=percent(columns.width),
            y=TOP,
            height=BOTTOM - TOP,
        ),
        *marks,
        class_="column",
    )


def _x_labels(columns: Columns) -> list[Markup]:
    """Those that would run into the one before, or out of the card, give way on a narrow screen."""
    found, taken_px = [], 0.0
    for index, text in enumerate(columns.labels):
        if not text:
            continue
        at = columns.left(index + 0.5)
        middle_px, half_px = at / 100 * NARROW_PX, len(text) * LETTER_PX / 2
        minor = middle_px - half_px < taken_px or middle_px + half_px > NARROW_PX + MARGIN_PX
        if not minor:
            taken_px = middle_px + half_px + LETTER_PX
        found.append(x_label(text, at, minor=minor))
    return found
