"""The plots of a comparison, out of its document."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

from . import svg
from .svg import Point

Row = dict[str, Any]


def write(folder: Path, document: dict[str, Any]) -> list[Path]:
    """One SVG file each; returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in plots(document["results"]):
        path = folder / f"{name}.svg"
        path.write_text(text)
        written.append(path)
    return written


def plots(results: Seq[Row]) -> Iterator[tuple[str, str]]:
    """(name, SVG): two of each temperature and schedule, two of each workload in it."""
    for temperature, schedule in sorted({(r["temperature"], r["schedule"]) for r in results}):
        if schedule == "off":
            continue
        rows = [r for r in results if (r["temperature"], r["schedule"]) == (temperature, schedule)]
        at, where = f"T{temperature:g}-{schedule}", f"T = {temperature:g}, {schedule}"
        yield f"speedup-{at}", _groups(rows, "speedup", "speedup_ci95", where, rule=1.0)
        yield f"accepted-{at}", _groups(rows, "accepted_length", "ci95", where, rule=1.0)
        for workload in dict.fromkeys(r["workload"] for r in rows):
            of = [r for r in rows if r["workload"] == workload and r["by_position"]]
            if of:
                yield f"position-{workload}-{at}", _positions(of, f"{workload}, {where}")
                yield f"widths-{workload}-{at}", _widths(of, f"{workload}, {where}")


def named(row: Row, rows: Seq[Row]) -> str:
    """The method's name, "blind" behind it where the same drafts knowing the grammar are there."""
    twin = any(r["method"] == row["method"] and r["masked"] and r is not row for r in rows)
    return f"{row['method']} blind" if twin and not row["masked"] else row["method"]


def _groups(rows: Seq[Row], value: str, interval: str, where: str, rule: float) -> str:
    """A group of points a workload, a point a method."""
    workloads = list(dict.fromkeys(r["workload"] for r in rows))
    of = {w: [r for r in rows if r["workload"] == w] for w in workloads}
    names = list(dict.fromkeys(named(r, of[r["workload"]]) for r in rows))
    series = []
    for number, name in enumerate(names):
        points = [
            Point(at + 0.7 * (number + 0.5) / len(names), r[value], *(r[interval] or (None, None)))
            for at, w in enumerate(workloads)
            for r in of[w]
            if named(r, of[w]) == name and r[value] is not None
        ]
        series.append((name, points))
    ticks = [(at + 0.35, workload) for at, workload in enumerate(workloads)]
    edges = [(-0.1, ""), (len(workloads) - 0.2, "")]
    title = f"{value.replace('_', ' ')}, {where}, 95 % intervals"
    return svg.plot(title, series, [*ticks, *edges], label="", joined=False, rule=rule)


def _positions(rows: Seq[Row], where: str) -> str:
    series = [
        (
            named(r, rows),
            [
                Point(p["position"], p["given_before"])
                for p in r["by_position"]
                if p["given_before"] is not None
            ],
        )
        for r in rows
    ]
    last = max(len(r["by_position"]) for r in rows)
    ticks = [(k, str(k)) for k in range(1, last + 1)]
    title = f"acceptance given that all before stand, {where}"
    return svg.plot(title, series, ticks, label="position", joined=True, least_top=1.0)


def _widths(rows: Seq[Row], where: str) -> str:
    last = max(int(width) for r in rows for width in r["widths"])
    series = []
    for row in rows:
        counts = {int(width): count for width, count in row["widths"].items()}
        total = sum(counts.values()) or 1
        shares = [Point(k, counts.get(k, 0) / total) for k in range(last + 1)]
        series.append((named(row, rows), shares))
    ticks = [(k, str(k)) for k in range(last + 1)]
    title = f"share of rounds by drafted tokens verified, {where}"
    return svg.plot(title, series, ticks, label="drafted tokens verified", joined=True)
