"""The chart of the page of groups, as a Vega-Lite specification that ``static/chart.js`` draws.

Values are scaled for the axis; what a tooltip says is text of the server's making, as in the table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import text

SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
"""Says which language it is; nothing is fetched from there."""
ROWS, SERIES = 30, 7
"""Groups along the axis, and colours: what is beyond is one more, where values can be added."""
OTHERS = "(others)"
Form = Callable[[Any], str]


@dataclass(frozen=True, slots=True)
class Group:
    """names: one or two. url: of the requests behind it, "" where no list can show just them."""

    names: tuple[str, ...]
    value: float
    requests: int
    url: str


def specification(title: str, heads: Sequence[str], groups: Sequence[Group], form: Form) -> str:
    """JSON. title: of the measure; heads: of the properties; groups: the largest first, all of them
    known. One property: bars. Two: stacked bars where values can be added, else a heat map."""
    adds = form in (text.exact, text.usd)
    two = len(heads) == 2
    firsts = _first_names(groups, adds)
    shown = [group for group in groups if group.names[0] in firsts]
    if two and adds:
        shown = _few_series(shown)
    scale, axis = _axis(form, max((abs(group.value) for group in shown), default=0.0))
    document = {
        "$schema": SCHEMA,
        "description": title,
        "width": "container",
        "height": {"step": 24},
        "autosize": {"type": "fit-x", "contains": "padding"},
        "data": {"values": [_datum(group, scale, form) for group in shown]},
    }
    hover = _tooltip(title, heads)
    if two and not adds:
        document |= _heat(title, heads, firsts, axis, hover)
    else:
        document |= _bars(title, heads, firsts, shown, axis, hover)
    return json.dumps(document)


def _first_names(groups: Sequence[Group], adds: bool) -> list[str]:
    """The values of the first property, in the order of their sums, or of their largest value."""
    weights: dict[str, float] = {}
    for group in groups:
        name, before = group.names[0], weights.get(group.names[0], 0.0)
        weights[name] = before + group.value if adds else max(before, group.value)
    return sorted(weights, key=lambda name: -weights[name])[:ROWS]


def _few_series(groups: Sequence[Group]) -> list[Group]:
    """The largest values of the second property, the others as one."""
    order = _first_names([replace(g, names=g.names[1:]) for g in groups], adds=True)
    if len(order) <= SERIES:
        return list(groups)
    kept, found = set(order[: SERIES - 1]), []
    others: dict[str, Group] = {}
    for group in groups:
        first, second = group.names
        if second in kept:
            found.append(group)
            continue
        into = others.get(first, Group((first, OTHERS), 0, 0, ""))
        others[first] = replace(
            into, value=into.value + group.value, requests=into.requests + group.requests
        )
    return [*found, *others.values()]


def _datum(group: Group, scale: float, form: Form) -> dict[str, Any]:
    names = dict(zip(("first", "second"), group.names, strict=False))
    told = {"shown": form(group.value), "requests": text.exact(group.requests), "url": group.url}
    return {**names, "value": group.value / scale, **told}


def _axis(form: Form, most: float) -> tuple[float, dict[str, Any]]:
    """What a value is divided by, and how the axis writes it."""
    if form is text.usd:
        digits = 2 if most >= 1e9 else 6
        return 1e9, {"format": f"$,.{digits}~f"}
    if form is text.share:
        return 1.0, {"format": ".2~%"}
    if form is text.duration:
        return 1000.0, {"format": ",.3~f"}
    if form is text.exact:
        return 1.0, {"labelExpr": "format(datum.value, '~s')", "tickMinStep": 1}
    return 1.0, {"format": ",.2~f"}


def _tooltip(title: str, heads: Sequence[str]) -> list[dict[str, str]]:
    pairs = [*zip(("first", "second"), heads, strict=False), ("shown", title)]
    if title != "Requests":
        pairs.append(("requests", "Requests"))
    return [{"field": field, "type": "nominal", "title": head} for field, head in pairs]


def _place(field: str, title: str | None, order: Sequence[str], **more: object) -> dict[str, Any]:
    return {"field": field, "type": "nominal", "title": title, "sort": list(order), **more}


def _bars(
    title: str,
    heads: Sequence[str],
    firsts: Sequence[str],
    groups: Sequence[Group],
    axis: Mapping[str, Any],
    hover: list[dict[str, str]],
) -> dict[str, Any]:
    x = {"field": "value", "type": "quantitative", "title": title, "axis": dict(axis)}
    encoding: dict[str, Any] = {
        "y": _place("first", None, firsts),
        "x": x,
        "tooltip": hover,
        "href": {"field": "url"},
    }
    found: dict[str, Any] = {
        "mark": {"type": "bar", "cornerRadiusEnd": 2, "cursor": "pointer"},
        "encoding": encoding,
    }
    if len(heads) == 2:
        seconds = [*dict.fromkeys(group.names[1] for group in groups)]
        encoding["color"] = _place("second", heads[1], seconds, legend={"orient": "top"})
        faded = {"condition": {"param": "picked", "value": 1}, "value": 0.15}
        encoding["opacity"] = faded
        select = {"type": "point", "fields": ["second"]}
        found["params"] = [{"name": "picked", "select": select, "bind": "legend"}]
    return found


def _heat(
    title: str,
    heads: Sequence[str],
    firsts: Sequence[str],
    axis: Mapping[str, Any],
    hover: list[dict[str, str]],
) -> dict[str, Any]:
    legend = {"orient": "top", "format": axis["format"]}
    color = {"field": "value", "type": "quantitative", "title": title, "legend": legend}
    cell = {
        "mark": {"type": "rect", "cursor": "pointer"},
        "encoding": {"color": color, "tooltip": hover, "href": {"field": "url"}},
    }
    told = {"mark": {"type": "text"}, "encoding": {"text": {"field": "shown"}}}
    across = _place("second", heads[1], [], axis={"labelAngle": 0, "labelLimit": 110})
    across.pop("sort")
    return {
        "encoding": {"y": _place("first", None, firsts), "x": across},
        "layer": [cell, told],
    }
