"""A finished request in the words of OpenTelemetry's GenAI conventions: the one place of names.

Names and units are those of the semantic conventions v1.41 (``gen_ai.*``, all "Development"), and
of their own repository since (open-telemetry/semantic-conventions-genai v0.1.0) as ``latest``. What
they have no words for (speculation, cost, routing) stands under ``agentspec.``. Nothing that was
said is among it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from agentspec.store.record import RequestRecord

Attributes = dict[str, Any]

PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "compact": "/v1/responses/compact",
    "messages": "/v1/messages",
    "embeddings": "/v1/embeddings",
}
_OPERATIONS = {"embeddings": "embeddings", "completions": "text_completion"}
_PROVIDERS = {"engine": "agentspec", "llamacpp": "llama.cpp"}
_LITELLM_PROVIDERS = {
    "azure": "azure.ai.openai",
    "azure_ai": "azure.ai.inference",
    "bedrock": "aws.bedrock",
    "gemini": "gcp.gemini",
    "mistral": "mistral_ai",
    "vertex_ai": "gcp.vertex_ai",
    "watsonx": "ibm.watsonx.ai",
    "xai": "x_ai",
}
_TOKENS = tuple(4**n for n in range(14))
_SECONDS = tuple(0.01 * 2**n for n in range(14))
_FIRST_S = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10,
)
_TOKEN_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1)


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric. buckets: upper bounds of a histogram; None: a counter."""

    name: str
    unit: str
    text: str
    buckets: tuple[float, ...] | None = None


def _histogram(name: str, unit: str, buckets: tuple[float, ...], text: str) -> Instrument:
    return Instrument(name, unit, text, buckets)


_SERVER = {
    "e2e": _histogram("gen_ai.server.request.duration", "s", _SECONDS, "Whole requests"),
    "ttft": _histogram("gen_ai.server.time_to_first_token", "s", _FIRST_S, "First token"),
    "tpot": _histogram("gen_ai.server.time_per_output_token", "s", _TOKEN_S, "Later tokens, each"),
}
_USAGE = _histogram("gen_ai.client.token.usage", "{token}", _TOKENS, "Tokens used")
_CLIENT = {
    "v1.41": {
        "e2e": _histogram("gen_ai.client.operation.duration", "s", _SECONDS, "Calls of backends"),
        "ttft": _histogram(
            "gen_ai.client.operation.time_to_first_chunk", "s", _FIRST_S, "First chunk"
        ),
    },
    "latest": {
        "e2e": _histogram("gen_ai.client.inference.duration", "s", _SECONDS, "Calls of backends"),
        "ttft": _histogram(
            "gen_ai.client.inference.time_to_first_chunk", "s", _FIRST_S, "First chunk"
        ),
    },
}
_LATEST_USAGE = {
    kind: _histogram(f"gen_ai.client.inference.usage.{kind}", "{token}", _TOKENS, "Tokens used")
    for kind in (
        "input_tokens",
        "output_tokens",
        "cache_read.input_tokens",
        "cache_write.input_tokens",
        "reasoning.output_tokens",
    )
}
_OURS = {
    "spec_steps": Instrument("agentspec.spec.steps", "{step}", "Verification steps"),
    "spec_drafted": Instrument("agentspec.spec.drafted", "{token}", "Drafted tokens verified"),
    "spec_accepted": Instrument("agentspec.spec.accepted", "{token}", "Drafted tokens accepted"),
    "forced_tok": Instrument("agentspec.spec.forced", "{token}", "Tokens a grammar forced"),
}
_COST = Instrument("agentspec.cost", "{USD}", "Cost of requests whose cost is known")


def instruments(names: str) -> list[Instrument]:
    """Every metric there is. names: "v1.41" or "latest"."""
    usage = [_USAGE] if names == "v1.41" else list(_LATEST_USAGE.values())
    return [*_SERVER.values(), *_CLIENT[names].values(), *usage, *_OURS.values(), _COST]


def was_sent_on(record: RequestRecord) -> bool:
    """Whether a backend was asked at all."""
    return bool(record.backend)


def operation(record: RequestRecord) -> str:
    """``gen_ai.operation.name``."""
    return _OPERATIONS.get(record.surface, "chat")


def provider(record: RequestRecord) -> str:
    """``gen_ai.provider.name``: the convention's own where it has one, else the server's kind."""
    if record.backend_kind == "litellm":
        vendor = record.upstream_model.partition("/")[0] if "/" in record.upstream_model else ""
        return _LITELLM_PROVIDERS.get(vendor, vendor or "openai")
    return _PROVIDERS.get(record.backend_kind, record.backend_kind)


def error_type(record: RequestRecord) -> str | None:
    """``error.type``; None for a request that did not fail."""
    if record.status == "ok":
        return None
    return record.error_code or record.error_type or record.status


def request_span(record: RequestRecord) -> tuple[str, Attributes]:
    """(name, attributes) of the span of the HTTP request that was answered (kind SERVER)."""
    path = PATHS.get(record.surface, record.surface)
    attributes = {
        "http.request.method": "POST",
        "http.route": path,
        "url.path": path,
        "http.response.status_code": record.http_status,
        "error.type": error_type(record),
        "user_agent.name": record.client,
        "user_agent.version": record.client_version,
        "agentspec.request.id": record.id,
        "agentspec.key.id": record.key_id,
        "agentspec.workload": record.workload,
        "agentspec.gateway.duration": _seconds(record.gateway_ms),
    }
    return f"POST {path}", _known(attributes)


def call_span(
    record: RequestRecord, names: str, address: tuple[str, int] | None
) -> tuple[str, Attributes]:
    """(name, attributes) of the span of the model's call (kind CLIENT). address: the backend's."""
    wrote = "cache_write" if names == "latest" else "cache_creation"
    counted = record.token_source != "none"
    shown = record.response_format.startswith("json")
    attributes = {
        "gen_ai.operation.name": operation(record),
        "gen_ai.provider.name": provider(record),
        "gen_ai.request.model": record.model,
        "gen_ai.request.stream": record.stream,
        "gen_ai.request.max_tokens": record.max_tokens,
        "gen_ai.request.temperature": record.temperature,
        "gen_ai.output.type": "json" if shown else None,
        "gen_ai.conversation.id": record.session_id,
        "gen_ai.response.model": record.upstream_model,
        "gen_ai.response.finish_reasons": (record.finish_reason,) if record.finish_reason else None,
        "gen_ai.response.time_to_first_chunk": _seconds(record.ttft_ms),
        "gen_ai.usage.input_tokens": record.in_tok if counted else None,
        "gen_ai.usage.output_tokens": record.out_tok if counted else None,
        "gen_ai.usage.cache_read.input_tokens": record.cached_tok if counted else None,
        f"gen_ai.usage.{wrote}.input_tokens": record.cache_write_tok,
        "gen_ai.usage.reasoning.output_tokens": record.reason_tok if counted else None,
        "error.type": error_type(record),
        "server.address": address[0] if address else None,
        "server.port": address[1] if address else None,
    }
    model = record.model or "unknown"
    return f"{operation(record)} {model}", _known(attributes) | _known(_our_attributes(record))


def _our_attributes(record: RequestRecord) -> Attributes:
    drafted = record.spec_steps > 0
    reason = record.decision.get("reason")
    return {
        "agentspec.request.id": record.id,
        "agentspec.backend": record.backend,
        "agentspec.workload": record.workload,
        "agentspec.routing.reason": reason if isinstance(reason, str) else None,
        "agentspec.routing.attempts": record.attempts,
        "agentspec.queue.duration": _seconds(record.queue_ms),
        "agentspec.spec.steps": record.spec_steps if drafted else None,
        "agentspec.spec.drafted": record.spec_drafted if drafted else None,
        "agentspec.spec.accepted": record.spec_accepted if drafted else None,
        "agentspec.spec.forced": record.forced_tok if drafted else None,
        "agentspec.spec.window": record.spec_window,
        "agentspec.tool_calls": record.tool_calls or None,
        "agentspec.tool_calls.valid": record.tool_calls_valid if record.tool_calls else None,
        "agentspec.cost": _usd(record.cost_nusd),
    }


def failed_attempts(record: RequestRecord) -> Iterator[tuple[str, Attributes]]:
    """(name, attributes) of an event for each backend that failed before the one that answered."""
    attempts = record.decision.get("attempts")
    for one in attempts if isinstance(attempts, list) else ():
        if one.get("error"):
            yield (
                "agentspec.attempt.failed",
                {"agentspec.backend": one["backend"], "error.type": one["error"]},
            )


def measures(
    record: RequestRecord, names: str, models: frozenset[str]
) -> Iterator[tuple[Instrument, float, Attributes]]:
    """What a request adds to the metrics. models: the configured names; others are "other", as
    labels are bounded."""
    common = {
        "gen_ai.operation.name": operation(record),
        "gen_ai.provider.name": provider(record) if was_sent_on(record) else None,
        "gen_ai.request.model": record.model if record.model in models else "other",
        "agentspec.backend": record.backend,
    }
    common = _known(common)
    failed = _known({"error.type": error_type(record)})
    times = {"e2e": record.e2e_ms, "ttft": record.ttft_ms, "tpot": record.tpot_ms}
    tables = (_SERVER, _CLIENT[names]) if was_sent_on(record) else (_SERVER,)
    for table in tables:
        for what, instrument in table.items():
            ms = times[what]
            if ms is not None:
                yield instrument, ms / 1000, common | failed if what == "e2e" else common
    if record.token_source != "none":
        yield from _usage(record, names, common)
    for field, instrument in _OURS.items():
        if getattr(record, field):
            yield instrument, getattr(record, field), common
    if record.cost_nusd:
        yield _COST, record.cost_nusd / 1e9, common


def _usage(
    record: RequestRecord, names: str, common: Attributes
) -> Iterator[tuple[Instrument, float, Attributes]]:
    if names == "v1.41":
        for kind, count in (("input", record.in_tok), ("output", record.out_tok)):
            yield _USAGE, count, common | {"gen_ai.token.type": kind}
        return
    counts: Mapping[str, int | None] = {
        "input_tokens": record.in_tok,
        "output_tokens": record.out_tok,
        "cache_read.input_tokens": record.cached_tok,
        "cache_write.input_tokens": record.cache_write_tok,
        "reasoning.output_tokens": record.reason_tok,
    }
    for kind, count in counts.items():
        if count is not None:
            yield _LATEST_USAGE[kind], count, common


def _seconds(ms: float | None) -> float | None:
    return None if ms is None else ms / 1000


def _usd(nusd: int | None) -> float | None:
    return None if nusd is None else nusd / 1e9


def _known(attributes: Attributes) -> Attributes:
    """Without what is not known."""
    return {name: value for name, value in attributes.items() if value not in (None, "")}
