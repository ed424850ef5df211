"""Explore: any measure by any one or two properties of requests, as bars, table and CSV."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentspec.store.board import Look
from agentspec.store.grouping import grouped
from agentspec.store.keys_report import keys_and_projects

from . import text
from .blocks import asked, label, number, ratio
from .chart_spec import Group, specification
from .charts import Columns, Layer
from .charts import grouped as side_by_side
from .context import Context
from .figures import thin
from .params import one_of
from .sheet import Block, Column, Field, Sheet
from .view import FILTERS, View

Sums = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Measure:
    """sums: those that ``value`` needs. value: None where it isn't known. answered: of requests
    that ended well only; others have no such time, or one that says nothing."""

    title: str
    sums: tuple[str, ...]
    value: Callable[[Sums], Any]
    form: Callable[[Any], str] = text.exact
    answered: bool = False


def _sum(title: str, name: str, form: Callable[[Any], str] = text.exact) -> Measure:
    return Measure(title, (name,), lambda one: one[name], form)


def _share(title: str, part: str, whole: str) -> Measure:
    return Measure(title, (part, whole), lambda one: ratio(one[part], one[whole]), text.share)


MEASURES: dict[str, Measure] = {
    "requests": _sum("Requests", "requests"),
    "cost_nusd": Measure(
        "Known cost",
        ("cost_nusd", "unpriced", "requests"),
        lambda one: one["cost_nusd"] if one["unpriced"] < one["requests"] else None,
        text.usd,
    ),
    "unpriced": _sum("Requests of unknown cost", "unpriced"),
    "in_tok": _sum("Input tokens", "in_tok"),
    "cached_share": _share("Input from the cache", "cached_tok", "in_tok"),
    "out_tok": _sum("Output tokens", "out_tok"),
    "decode_tok_s": Measure(
        "Tokens/s of one stream",
        ("decode_tok", "decode_us"),
        lambda one: ratio(1e6 * one["decode_tok"], one["decode_us"]),
        lambda value: text.decimal(value, 1),
    ),
    "mean_e2e_ms": Measure(
        "Mean time of an answer",
        ("e2e_us", "requests"),
        lambda one: ratio(one["e2e_us"] / 1000, one["requests"]),
        text.duration,
        answered=True,
    ),
    "accepted_length": Measure(
        "Tokens a step",
        ("spec_steps", "spec_accepted"),
        lambda one: 1 + one["spec_accepted"] / one["spec_steps"] if one["spec_steps"] else None,
        text.decimal,
    ),
    "acceptance_rate": _share("Acceptance rate", "spec_accepted", "spec_drafted"),
    "rejected_tok": Measure(
        "Drafted in vain",
        ("spec_drafted", "spec_accepted"),
        lambda one: one["spec_drafted"] - one["spec_accepted"],
    ),
    "forced_tok": _sum("Tokens forced by a grammar", "forced_tok"),
    "tool_calls": _sum("Tool calls", "tool_calls"),
    "valid_share": _share("Valid tool calls", "tool_calls_valid", "tool_calls"),
    "redecoded_tok": _sum("Tokens decoded again", "redecoded_tok"),
    "tools_saved_chars": _sum("Characters of tools spared", "tools_saved_chars"),
}

DIMENSIONS = {
    "model": "Model",
    "backend": "Backend",
    "workload": "Class of work",
    "status": "Status",
    "spec_arm": "Arm",
    "client": "Client",
    "key_id": "Key",
    "project": "Project",
    "surface": "Surface",
    "response_format": "Response format",
}
SHOWN, DRAWN = 500, 16
_FILTER_OF = {column: name for name, column in FILTERS.items()} | {"status": "status"}


def explore(look: Look, view: View, _: Context) -> Sheet:
    """The page."""
    chosen = one_of(view, "measure", MEASURES, "requests")
    first = one_of(view, "by", DIMENSIONS, "model")
    second = one_of(view, "then", {**DIMENSIONS, "none": ""}, "none")
    by = [first] if second in ("none", first) else [first, second]
    groups = _groups(look, MEASURES[chosen], by)
    block = asked(look, _block(groups, chosen, by, view))
    names = [(name, measure.title) for name, measure in MEASURES.items()]
    dimensions = list(DIMENSIONS.items())
    return Sheet(
        "Explore",
        "Sums over all requests of the range, in groups.",
        blocks=[block],
        fields=[
            Field("measure", "Measure", chosen, names),
            Field("by", "By", first, dimensions),
            Field("then", "Then by", second, [("none", "nothing"), *dimensions]),
        ],
    )


def _groups(look: Look, measure: Measure, by: list[str]) -> dict[tuple, dict[str, int]]:
    """The sums by the properties; a project is that of a request's key."""
    columns = [("key_id" if name == "project" else name) for name in by]
    summed = tuple(dict.fromkeys((*measure.sums, "requests")))
    part = look.slice
    if measure.answered:
        part = replace(part, where={"status": "ok", **part.where})
    found = look.ask(grouped, part, summed, by=tuple(dict.fromkeys(columns)))
    if "project" not in by:
        return found
    known = look.aside(keys_and_projects, 0).keys
    project = {key.record.id: key.record.project or "" for key in known}
    places = {name: at for at, name in enumerate(dict.fromkeys(columns))}
    into: dict[tuple, dict[str, int]] = defaultdict(lambda: dict.fromkeys(summed, 0))
    for key, one in found.items():
        values = tuple(
            project.get(key[places["key_id"]], "") if name == "project" else key[places[column]]
            for name, column in zip(by, columns, strict=True)
        )
        for name, value in one.items():
            into[values][name] += value
    return dict(into)


def _block(groups: Mapping[tuple, Sums], chosen: str, by: list[str], view: View) -> Block:
    measure = MEASURES[chosen]
    told = [(key, measure.value(one), one["requests"]) for key, one in groups.items()]
    told.sort(key=lambda row: (row[1] is None, -(row[1] or 0), row[0]))
    told = told[:SHOWN]
    names = [" / ".join(part or "(none)" for part in key) for key, _, _ in told]
    known = [(name, row[1]) for name, row in zip(names, told, strict=True) if row[1] is not None]
    drawn = known[:DRAWN]
    axis = Columns([name for name, _ in drawn], thin([_short(name) for name, _ in drawn], 8))
    title = f"{measure.title} by {' and '.join(DIMENSIONS[name].lower() for name in by)}"
    columns = [label(DIMENSIONS[name], name) for name in by]
    columns.append(Column(measure.title, chosen, measure.form))
    if chosen != "requests":
        columns.append(number("Requests", "requests"))
    layer = Layer(measure.title, "c-out", [value for _, value in drawn])
    more = f" The chart has the first {DRAWN}." if len(known) > DRAWN else ""
    if len(groups) > SHOWN:
        more += f" Table and CSV have the first {SHOWN}."
    if measure.answered and "status" not in view.filters:
        more += " Of answered requests."
    return Block(
        "groups",
        title,
        f"{text.plural(len(groups), 'group')}, the largest first.{more}",
        columns,
        [(*k, value, n) if chosen != "requests" else (*k, value) for k, value, n in told],
        side_by_side(title, axis, [layer], measure.form, whole=measure.form in text.WHOLE),
        empty="" if told else "No request in this range.",
        links=[_link(view, by, key) for key, _, _ in told],
        chart=_chart(measure, by, told, view),
    )


def _chart(
    measure: Measure, by: list[str], told: list[tuple[tuple[str, ...], Any, int]], view: View
) -> str:
    """What is drawn where scripts run; "" where nothing is known."""
    groups = [
        Group(tuple(part or "(none)" for part in key), value, requests, _link(view, by, key))
        for key, value, requests in told
        if value is not None
    ]
    heads = [DIMENSIONS[name] for name in by]
    return specification(measure.title, heads, groups, measure.form) if groups else ""


def _short(name: str) -> str:
    return name if len(name) <= 18 else name[:17] + "\u2026"


def _link(view: View, by: list[str], key: tuple[str, ...]) -> str:
    """The rows of a group, where the list can be filtered by all of its properties."""
    pairs = list(zip(by, key, strict=True))
    if any(name not in _FILTER_OF or (name == "project" and not value) for name, value in pairs):
        return ""
    return view.rows(**{_FILTER_OF[name]: value for name, value in pairs})
