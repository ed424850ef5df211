"""A routing decision, as the ledger keeps it, as facts and tables that the page shows.

A decision of an older or another form is told as far as it goes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import text


@dataclass(frozen=True, slots=True)
class Told:
    """candidates: rows under ``HEAD``; attempts: (backend, what came of it)."""

    facts: Sequence[tuple[str, str]] = field(default_factory=list)
    candidates: Sequence[Sequence[str]] = field(default_factory=list)
    attempts: Sequence[tuple[str, str]] = field(default_factory=list)
    head: Sequence[str] = field(default_factory=list)


HEAD = ("Backend", "Stands", "Chance", "Score", "First token", "Per token", "Cached", "Cost", "Why")


def explained(decision: Mapping[str, Any]) -> Told:
    """The decision in order: what was done and why, what was weighed, what was tried."""
    facts = [
        ("Policy", _text(decision.get("policy"))),
        ("Chosen", _text(decision.get("chosen"))),
        ("Because", _text(decision.get("reason"))),
        ("Propensity", _number(decision.get("propensity"), "{:.4g}")),
        ("Load there", _number(decision.get("load"), "{:g} requests")),
        ("Task", _task(decision.get("task"))),
        ("Shadow policy", _shadow(decision.get("shadow"))),
    ]
    candidates = [c for c in _list(decision.get("candidates")) if isinstance(c, Mapping)]
    attempts = [a for a in _list(decision.get("attempts")) if isinstance(a, Mapping)]
    return Told(
        [(name, value) for name, value in facts if value not in ("", text.UNKNOWN)],
        [_candidate(one) for one in candidates],
        [(_text(a.get("backend")), _text(a.get("error")) or "answered") for a in attempts],
        HEAD,
    )


def _candidate(one: Mapping[str, Any]) -> list[str]:
    predicted = one.get("predicted")
    told: Mapping[str, Any] = predicted if isinstance(predicted, Mapping) else {}
    return [
        _text(one.get("backend")),
        "eligible" if one.get("eligible") else "left out",
        _number(one.get("chance"), "{:.4f}"),
        _number(one.get("score"), "{:.4g}"),
        text.duration(_real(told.get("ttft_ms"))),
        text.duration(_real(told.get("tpot_ms"))),
        _number(told.get("cached_tok"), "{:,.0f}"),
        text.usd(round(cost)) if (cost := _real(told.get("cost_nusd"))) is not None else "\u2013",
        _text(one.get("reason")),
    ]


def _task(task: Any) -> str:
    if not isinstance(task, Mapping):
        return ""
    parts = [_text(task.get(name)) for name in ("kind", "client", "schema")]
    guess = _number(task.get("guess_tok"), "about {:,.0f} prompt tokens")
    return ", ".join(part for part in [*parts, guess] if part and part != text.UNKNOWN)


def _shadow(shadow: Any) -> str:
    if not isinstance(shadow, Mapping):
        return ""
    return f"{_text(shadow.get('policy'))} would have chosen {_text(shadow.get('chosen'))}"


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:
    return "" if value is None else str(value)


def _real(value: Any) -> float | None:
    real = isinstance(value, int | float) and not isinstance(value, bool)
    return value if real else None


def _number(value: Any, form: str) -> str:
    real = _real(value)
    return text.UNKNOWN if real is None else form.format(real)
