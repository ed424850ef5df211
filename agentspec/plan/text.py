"""A plan as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_GB = 1e9


def render(document: dict[str, Any]) -> str:
    draft = document["draft"] or "no draft"
    lines = [
        f"{document['model']} with {draft} on {document['gpus']}, "
        f"{document['context_tokens']:,} tokens a request",
        f"Verdict: {document['verdict']}.",
        *(f"- {reason}" for reason in document["reasons"]),
        "",
        *_params(document["params"]),
        "",
        *_memory(document["memory"]),
    ]
    if document["levels"]:
        lines += ["", *_levels(document["levels"], document["acceptance"])]
    if document["simulated"]:
        lines += [
            "",
            "This project's scheduler, simulated (lower acceptance, with overhead):",
        ]
        lines += _table(document["simulated"])
    if document["flags"]:
        lines += ["", "Start it:", *(f"- {k}: {v}" for k, v in document["flags"].items())]
    lines += ["", "Anchors (published beside computed):"]
    lines += [_anchor(one) for one in document["anchors"]]
    lines += ["", "Basis:", *(f"- {line}" for line in document["basis"])]
    return "\n".join(lines) + "\n"


def _anchor(one: dict[str, Any]) -> str:
    seen = "in view when constants were set" if one["fitted"] else "not looked at before"
    return (
        f"- {one['what']}: {one['published']:g}, computed {one['computed']:.3g} "
        f"({one['error']:+.0%}, {seen}; {one['source']})"
    )


def _params(found: dict[str, Any]) -> list[str]:
    lines = [
        f"Model: {found['total'] / 1e9:.1f} B parameters, {found['active'] / 1e9:.1f} B active, "
        f"{found['weight_bytes'] / _GB:.1f} GB, {found['kv_bytes_a_token'] / 1024:.1f} KiB of K/V "
        f"a token, {found['kv_window_bytes_a_request'] / 2**20:.1f} MiB of windows a request."
    ]
    if "draft_weight_bytes" in found:
        lines.append(
            f"Draft: {found['draft_weight_bytes'] / _GB:.2f} GB, "
            f"{found['draft_kv_bytes_a_token'] / 1024:.1f} KiB of K/V a token, "
            f"1:{found['draft_ratio']:.1f} of the model's active parameters."
        )
    return lines


def _memory(found: dict[str, Any]) -> list[str]:
    rows = [
        {
            "GB on each GPU": name.replace("_", " "),
            "weights": one["weights"] / _GB,
            "draft": one["draft"] / _GB,
            "graphs": one["graphs"] / _GB,
            "work": one["activations"] / _GB,
            "K/V room": one["kv_room"] / _GB,
            "requests": one["requests"],
        }
        for name, one in found.items()
    ]
    return _table(rows)


def _levels(levels: Sequence[dict[str, Any]], acceptance: dict[str, Any]) -> list[str]:
    head = (
        f"Roofline, acceptance {acceptance['low']:.2f} to {acceptance['high']:.2f} a token "
        f"({acceptance['source']}):"
    )
    return [head, *_table(levels)]


def _table(rows: Sequence[dict[str, Any]]) -> list[str]:
    columns = list(rows[0])
    cells = [columns, *([_cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    return [
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    ]


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}"
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
