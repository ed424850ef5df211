"""Everything about one request, in groups of names and values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from agentspec.store.acceptance import Acceptance
from agentspec.store.record import RequestRecord

from . import text
from .figures import accepted_lengths
from .sheet import Block


@dataclass(frozen=True, slots=True)
class Group:
    """A heading, and what stands under it; empty values are left out."""

    title: str
    facts: list[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Detail:
    """What the page of one request shows."""

    groups: list[Group]
    sources: list[tuple[str, int, int, str]]
    decision: str
    figure: Block | None
    phases: list[tuple[str, str, float]] = field(default_factory=list)


def detail(record: RequestRecord) -> Detail:
    """The page's content for one request."""
    groups = [_request(record), _outcome(record), _tokens(record), _speculation(record)]
    groups += [_time(record), _cost(record)]
    sources = [
        (name, s.get("drafted", 0), s.get("accepted", 0), _ratio(s))
        for name, s in record.spec_sources.items()
    ]
    figure = accepted_lengths(Acceptance(tuple(record.spec_hist))) if record.spec_hist else None
    decision = json.dumps(record.decision, indent=2, ensure_ascii=False)
    known = [Group(g.title, [(n, v) for n, v in g.facts if v]) for g in groups]
    return Detail(known, sources, decision if record.decision else "", figure, _phases(record))


def _ratio(source: dict[str, int]) -> str:
    drafted = source.get("drafted", 0)
    return text.share(source.get("accepted", 0) / drafted if drafted else None)


def _request(r: RequestRecord) -> Group:
    return Group(
        "Request",
        [
            ("Id", r.id),
            ("Taken in", text.full_time(r.ts_ms)),
            ("Surface", r.surface + (", streamed" if r.stream else "")),
            ("Client", f"{r.client} {r.client_version}".strip()),
            ("Session", r.session_id),
            ("Session from", r.session_source),
            ("Key", r.key_id),
            ("Workload", r.workload),
            ("Messages", text.exact(r.n_messages)),
            ("Tools", f"{r.n_tools}, choice {r.tool_choice or 'unset'}" if r.n_tools else ""),
            ("Response format", r.response_format),
            ("Temperature", "" if r.temperature is None else f"{r.temperature:g}"),
            ("Most tokens", _limit(r)),
        ],
    )


def _limit(r: RequestRecord) -> str:
    if r.max_tokens is None and r.max_tokens_clamped is None:
        return ""
    cut = f", cut to {r.max_tokens_clamped:,}" if r.max_tokens_clamped is not None else ""
    return f"{text.exact(r.max_tokens)}{cut}"


def _outcome(r: RequestRecord) -> Group:
    return Group(
        "Outcome",
        [
            ("Status", r.status),
            ("HTTP status", str(r.http_status or "")),
            ("Finish reason", r.finish_reason or ""),
            ("Error", " / ".join(part for part in (r.error_type, r.error_code) if part)),
            ("Model", r.model),
            ("Upstream model", r.upstream_model),
            ("Backend", f"{r.backend} ({r.backend_kind})" if r.backend_kind else r.backend),
            ("Attempts", str(r.attempts)),
            ("Tool calls", f"{r.tool_calls}, {r.tool_calls_valid} valid" if r.tool_calls else ""),
            ("Tool calls dropped", str(r.tool_calls_dropped or "")),
            ("Tool calls mended", str(r.tool_calls_repaired or "")),
        ],
    )


def _tokens(r: RequestRecord) -> Group:
    return Group(
        "Tokens",
        [
            ("Input", text.exact(r.in_tok)),
            ("Fresh input", text.exact(r.in_tok - r.cached_tok)),
            ("Cached input", text.exact(r.cached_tok)),
            ("Written to a cache", text.exact(r.cache_write_tok) if r.cache_write_tok else ""),
            ("Output", text.exact(r.out_tok)),
            ("Reasoning", text.exact(r.reason_tok) if r.reason_tok else ""),
            ("Set by the grammar", text.exact(r.forced_tok) if r.forced_tok else ""),
            ("Decoded again", text.exact(r.redecoded_tok) if r.redecoded_tok else ""),
            ("Spared by short tools", _chars(r.tools_saved_chars)),
            ("Counted by", r.token_source),
        ],
    )


def _chars(count: int | None) -> str:
    return f"{text.exact(count)} characters" if count else ""


def _speculation(r: RequestRecord) -> Group:
    rate = r.spec_accepted / r.spec_drafted if r.spec_drafted else None
    length = Acceptance(tuple(r.spec_hist)).mean_length
    return Group(
        "Speculation",
        [
            ("Arm", r.spec_arm or ""),
            ("Steps", text.exact(r.spec_steps)),
            ("Drafted", text.exact(r.spec_drafted)),
            ("Accepted", text.exact(r.spec_accepted)),
            ("Acceptance rate", text.share(rate)),
            ("Accepted length", text.decimal(length)),
            ("Exact backend", "yes" if r.exact else "no"),
        ],
    )


def _time(r: RequestRecord) -> Group:
    def busy(us: int) -> str:
        return text.duration(us / 1000) if us else ""

    cold = {None: "", True: "compiled", False: "from the cache"}[r.grammar_cold]
    return Group(
        "Time",
        [
            ("Queued", text.duration(r.queue_ms) if r.queue_ms is not None else ""),
            ("First token", text.duration(r.ttft_ms)),
            ("Per token after it", text.duration(r.tpot_ms)),
            ("Whole answer", text.duration(r.e2e_ms)),
            ("Gateway's own", text.duration(r.gateway_ms) if r.gateway_ms is not None else ""),
            ("Engine: prefill", busy(r.busy_prefill_us)),
            ("Engine: decode", busy(r.busy_decode_us)),
            ("Engine: drafting", busy(r.busy_draft_us)),
            ("Engine: grammar", busy(r.busy_grammar_us)),
            ("Grammar", cold),
        ],
    )


def _cost(r: RequestRecord) -> Group:
    retried = r.attempts > 1 or r.cost_failed_nusd
    return Group(
        "Cost",
        [
            ("Total", text.usd(r.cost_nusd)),
            ("Fresh input", text.usd(r.cost_fresh_nusd)),
            ("Cached input", text.usd(r.cost_cached_nusd)),
            ("Output", text.usd(r.cost_out_nusd)),
            *([("Calls that failed before", text.usd(r.cost_failed_nusd))] if retried else []),
            ("Formula", str(r.cost_formula)),
        ],
    )


def _phases(r: RequestRecord) -> list[tuple[str, str, float]]:
    """The request's time as (name, colour, ms): queued, then to the first token, then decoding."""
    if r.ttft_ms is None or r.e2e_ms is None:
        return []
    queued = min(r.queue_ms or 0.0, r.ttft_ms)
    phases = [
        ("queued", "c-cached", queued),
        ("to the first token", "c-ttft", r.ttft_ms - queued),
        ("to the end", "c-e2e", max(r.e2e_ms - r.ttft_ms, 0.0)),
    ]
    return [phase for phase in phases if phase[2] > 0]
