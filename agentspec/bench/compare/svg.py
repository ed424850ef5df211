"""Two kinds of plots as SVG text: lines, and points with intervals in groups."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT = 720, 400
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 150, 32, 48
_COLOURS = ("#555", "#c33", "#36c", "#2a2", "#a3a", "#c80", "#088", "#844", "#484", "#66c", "#000")


@dataclass(frozen=True, slots=True)
class Point:
    """x: a place from 0. low, high: of its interval, if it has one."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None


def colour(number: int) -> str:
    return _COLOURS[number % len(_COLOURS)]


def plot(
    title: str,
    series: Seq[tuple[str, Seq[Point]]],
    ticks: Seq[tuple[float, str]],
    *,
    label: str,
    joined: bool,
    least_top: float = 0.0,
    rule: float | None = None,
) -> str:
    """ticks: places of the x axis and their names. joined: points are a line. rule: a line across
    at this height. The y axis starts at 0."""
    points = [p for _, of in series for p in of]
    top = 1.05 * max([least_top, *(p.high if p.high is not None else p.y for p in points)])
    area = _Area(min(x for x, _ in ticks), max(x for x, _ in ticks), top or 1.0)
    body = [f'<text x="{_LEFT}" y="18" font-size="13">{escape(title)}</text>']
    body += area.axes(ticks, label)
    if rule is not None:
        body.append(area.across(rule, "#000"))
    for number, (name, of) in enumerate(series):
        body += area.series(number, name, of, joined)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" '
        f'font-family="sans-serif" font-size="11">{"".join(body)}</svg>\n'
    )


@dataclass(frozen=True, slots=True)
class _Area:
    """From values to places in the picture."""

    left: float
    right: float
    top: float

    def x(self, value: float) -> float:
        wide = (self.right - self.left) or 1.0
        return round(_LEFT + (value - self.left) / wide * (_WIDTH - _LEFT - _RIGHT), 1)

    def y(self, value: float) -> float:
        return round(_HEIGHT - _BOTTOM - value / self.top * (_HEIGHT - _TOP - _BOTTOM), 1)

    def across(self, value: float, stroke: str) -> str:
        y = self.y(value)
        return f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - _RIGHT}" y2="{y}" stroke="{stroke}"/>'

    def axes(self, ticks: Seq[tuple[float, str]], label: str) -> Iterator[str]:
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            value = share * self.top
            yield self.across(value, "#ddd")
            place = f'x="{_LEFT - 6}" y="{self.y(value) + 4}" text-anchor="end"'
            yield f"<text {place}>{value:.3g}</text>"
        for value, name in ticks:
            yield (
                f'<text x="{self.x(value)}" y="{_HEIGHT - _BOTTOM + 18}" '
                f'text-anchor="middle">{escape(name)}</text>'
            )
        yield f'<text x="{_LEFT}" y="{_HEIGHT - 8}">{escape(label)}</text>'

    def series(self, number: int, name: str, points: Seq[Point], joined: bool) -> Iterator[str]:
        stroke = colour(number)
        if joined:
            path = " ".join(f"{self.x(p.x)},{self.y(p.y)}" for p in points)
            yield f'<polyline points="{path}" fill="none" stroke="{stroke}" stroke-width="1.5"/>'
        for p in points:
            yield f'<circle cx="{self.x(p.x)}" cy="{self.y(p.y)}" r="3" fill="{stroke}"/>'
            if p.low is not None and p.high is not None:
                x = self.x(p.x)
                yield (
                    f'<line x1="{x}" y1="{self.y(p.low)}" x2="{x}" y2="{self.y(p.high)}" '
                    f'stroke="{stroke}"/>'
                )
        yield (
            f'<text x="{_WIDTH - _RIGHT + 12}" y="{_TOP + 14 * (number + 1)}" fill="{stroke}">'
            f"{escape(name)}</text>"
        )
