"""What servers tell about their speculation, each in its own spelling, checked before it is kept.

Tried in this order, the source named after who told it:

- ``agentspec``: our engine's own report, its sources as it names them;
- ``metrics.speculative_decoding``: vLLM (>= 0.29, --per-request-spec-decode-metrics; vllm#48915);
- ``sglext.spec_tokens_details``: SGLang (``return_spec_tokens_details``; sglang#33518). With drafts
  of varying width its count of proposals is too large (sglang#34814): its length is right;
- ``timings.draft_n`` and ``draft_n_accepted``: llama.cpp (llama.cpp#12603).

A payload that contradicts itself is no report: more accepted than drafted, fewer tokens than steps.
A histogram that does not add up to the other counts is left out alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from agentspec.wire.extension import SourceCount, SpecReport, report_from

_VLLM_QUEUE = "queue_time_ms"


@dataclass(frozen=True, slots=True)
class Told:
    """The fields of an answer that may hold a report, and the tokens that it says it generated
    (None: not told)."""

    agentspec: Any = None
    metrics: Any = None
    sglext: Any = None
    timings: Any = None
    out_tok: int | None = None


def report_of(told: Told) -> SpecReport | None:
    """What the backend told about its speculation; None where it told nothing, or nonsense."""
    if told.agentspec is not None:
        try:
            return report_from(told.agentspec)
        except msgspec.ValidationError:
            return None
    if isinstance(told.metrics, dict):
        return _vllm(told.metrics, told.out_tok)
    if isinstance(told.sglext, dict):
        return _sglang(told.sglext.get("spec_tokens_details"), told.out_tok)
    if isinstance(told.timings, dict) and "draft_n" in told.timings:
        return _llamacpp(told.timings)
    return None


def _vllm(metrics: dict[str, Any], out_tok: int | None) -> SpecReport | None:
    found = metrics.get("speculative_decoding")
    report = _counted("vllm", found, "num_draft_tokens", "num_accepted_draft_tokens")
    if report is not None and isinstance(found, dict):
        report = _stepped(report, found, ("num_spec_steps", "acceptance_histogram"), out_tok)
    queued_ms = metrics.get(_VLLM_QUEUE)
    if isinstance(queued_ms, int | float) and 0 < queued_ms < 1e9:
        report = report or SpecReport()
        report.queue_us = round(queued_ms * 1000)
    return report


def _sglang(found: Any, out_tok: int | None) -> SpecReport | None:
    """Its newer names, then the older ones. A list (of several choices) is no report."""
    for drafted, accepted, hist in (
        ("spec_num_proposed_drafts", "spec_num_correct_drafts", "spec_correct_drafts_histogram"),
        ("spec_draft_token_num", "spec_accept_token_num", "spec_accept_histogram"),
    ):
        report = _counted("sglang", found, drafted, accepted)
        if report is not None:
            return _stepped(report, found, ("spec_verify_ct", hist), out_tok)
    return None


def _llamacpp(timings: dict[str, Any]) -> SpecReport | None:
    """Each of its steps yields one token beside those accepted; the first token is the prompt's."""
    report = _counted("llamacpp", timings, "draft_n", "draft_n_accepted")
    if report is None:
        return None
    _, accepted = report.totals()
    steps = count(timings, "predicted_n") - accepted - 1
    if "predicted_n" in timings and steps < 0 < accepted:
        return None
    report.steps = max(0, steps)
    return report


def _counted(source: str, found: Any, drafted: str, accepted: str) -> SpecReport | None:
    if not isinstance(found, dict) or drafted not in found:
        return None
    counts = SourceCount(count(found, drafted), count(found, accepted))
    return SpecReport(sources={source: counts}) if counts.accepted <= counts.drafted else None


def _stepped(
    report: SpecReport, found: dict[str, Any], names: tuple[str, str], out_tok: int | None
) -> SpecReport | None:
    """Add the step count, and the histogram where it adds up. names: of the two."""
    report.steps = count(found, names[0])
    _, accepted = report.totals()
    if out_tok is not None and report.steps > out_tok:
        return None
    dense = found.get(names[1])
    if isinstance(dense, list) and all(isinstance(n, int) and n >= 0 for n in dense):
        adds_up = sum(dense) == report.steps
        adds_up = adds_up and sum(j * n for j, n in enumerate(dense)) == accepted
        report.hist = dense if adds_up else []
    return report


def count(found: dict[str, Any] | None, key: str) -> int:
    """A count out of a server's JSON, ``5.0`` too; what is missing, negative or no number counts as
    none."""
    value = (found or {}).get(key)
    if isinstance(value, float) and value.is_integer() and value < 2**53:
        value = int(value)
    return value if isinstance(value, int) and value >= 0 else 0
