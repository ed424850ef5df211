"""Why a request went where it went, out of its row's decision, in words and a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_COLUMNS = (
    ("ttft_ms", "ttft ms", "{:.0f}"),
    ("tpot_ms", "tpot ms", "{:.1f}"),
    ("cached_tok", "cached", "{:.0f}"),
    ("accepted_length", "tok/step", "{:.2f}"),
    ("met", "on target", "{:.1%}"),
    ("load", "load", "{:.0f}"),
)


def explain(decision: Mapping[str, Any]) -> Iterator[str]:
    """Lines. A decision of an older or another form is told as far as it goes."""
    chance = decision.get("propensity")
    yield f"policy      {decision.get('policy', '?')}"
    yield f"chosen      {decision.get('chosen') or 'none'}"
    yield f"because     {decision.get('reason', '?')}"
    if isinstance(chance, int | float):
        yield f"propensity  {chance:.4g}"
    task = decision.get("task")
    if isinstance(task, Mapping):
        told = " ".join(str(task.get(name) or "-") for name in ("kind", "client", "schema"))
        yield f"task        {told}, about {task.get('guess_tok', 0)} prompt tokens"
    shadow = decision.get("shadow")
    if isinstance(shadow, Mapping):
        yield f"shadow      {shadow.get('policy')} would have chosen {shadow.get('chosen')}"
    yield ""
    yield from _table(decision)
    attempts = decision.get("attempts")
    if isinstance(attempts, list) and attempts:
        yield ""
        for number, one in enumerate(attempts, 1):
            error = one.get("error")
            yield f"attempt {number}   {one.get('backend')}: {error or 'answered'}"


def _table(decision: Mapping[str, Any]) -> Iterator[str]:
    head = ["backend", "chance", "score", *(title for _, title, _ in _COLUMNS), "USD", "why"]
    rows = [head]
    for candidate in decision.get("candidates") or ():
        predicted = candidate.get("predicted") or {}
        cost = predicted.get("cost_nusd")
        rows.append(
            [
                candidate.get("backend", "?"),
                _as("{:.4f}", candidate.get("chance")),
                _as("{:.6f}", candidate.get("score")),
                *(_as(form, predicted.get(name)) for name, _, form in _COLUMNS),
                "-" if cost is None else f"{cost / 1e9:.6f}",
                candidate.get("reason", ""),
            ]
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(head) - 1)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _as(form: str, value: object) -> str:
    return form.format(value) if isinstance(value, int | float) else "-"
