"""Traces, metrics and log lines of requests, as a collector and a reader of logs get them."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest

from agentspec.gateway.genai import instruments, measures, provider
from agentspec.gateway.telemetry import telemetry_for
from agentspec.logs import REQUESTS, JsonLines
from agentspec.settings import BackendSettings, ModelSettings, Settings, SettingsError
from agentspec.settings_telemetry import TelemetrySettings
from agentspec.store.record import RequestRecord
from agentspec.tracing import Trace, begin, current
from tests.gateway.collector import Collector, plain, running_collector
from tests.gateway.conftest import StartGateway
from tests.gateway.scripts import Upstream

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
CALLER = "00f067aa0ba902b7"
GIVEN = f"00-{TRACE}-{CALLER}-01"


@pytest.fixture
async def collector() -> AsyncIterator[Collector]:
    async with running_collector() as collector:
        yield collector


def settings(up: Upstream, **telemetry: Any) -> Settings:
    return Settings(
        telemetry=TelemetrySettings(**telemetry),
        backends={
            "up": BackendSettings(kind="vllm", url=up.url, constrained=True),
            "ill": BackendSettings(kind="vllm", url=up.url, constrained=True),
        },
        models={
            "good": ModelSettings(backends=["ill", "up"], upstream_names={"ill": "broken"}),
            "refuses": ModelSettings(backends=["up"], upstream_name="too_long"),
        },
    )


async def ask(gateway: Any, model: str, headers: dict[str, str], **more: Any) -> Any:
    body = {"model": model, "messages": [{"role": "user", "content": "secret words"}], **more}
    return await gateway.http.post("/v1/chat/completions", json=body, headers=headers)


async def test_one_request_is_two_spans_below_its_callers(
    start: StartGateway, up: Upstream, collector: Collector
):
    asked = settings(up, otlp_url=collector.url)
    async with start(settings=asked) as gateway:
        headers = {"traceparent": GIVEN, "tracestate": "vendor=1", "x-session-id": "run-7"}
        answer = await ask(gateway, "good", headers, stream=True, temperature=0.5, max_tokens=9)
        assert answer.status_code == 200
        row = gateway.journal.row
    served, call = collector.named("POST /v1/chat/completions"), collector.named("chat good")
    assert served.trace_id.hex() == call.trace_id.hex() == TRACE
    assert served.parent_span_id.hex() == CALLER and call.parent_span_id == served.span_id
    assert (served.kind, call.kind) == (2, 3)  # SERVER and CLIENT
    sent = up.headers[-1]
    assert sent["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01"
    assert sent["tracestate"] == "vendor=1"
    assert row.e2e_ms is not None and row.ttft_ms is not None
    assert served.start_time_unix_nano == row.ts_ms * 10**6
    assert served.end_time_unix_nano - served.start_time_unix_nano == round(row.e2e_ms * 1e6)
    assert plain(call.attributes) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "vllm",
        "gen_ai.request.model": "good",
        "gen_ai.request.stream": True,
        "gen_ai.request.max_tokens": 9,
        "gen_ai.request.temperature": 0.5,
        "gen_ai.conversation.id": "run-7",
        "gen_ai.response.model": "good",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": row.ttft_ms / 1000,
        "gen_ai.usage.input_tokens": 12,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.usage.cache_read.input_tokens": 8,
        "gen_ai.usage.reasoning.output_tokens": 0,
        "server.address": "127.0.0.1",
        "server.port": int(up.url.rpartition(":")[2]),
        "agentspec.request.id": row.id,
        "agentspec.backend": "up",
        "agentspec.workload": row.workload,
        "agentspec.routing.reason": row.decision["reason"],
        "agentspec.routing.attempts": 2,
        **{
            name: value
            for name, value in plain(call.attributes).items()
            if name.startswith(("agentspec.spec.", "agentspec.queue."))
        },
    }
    assert [(e.name, plain(e.attributes)["agentspec.backend"]) for e in call.events] == [
        ("agentspec.attempt.failed", "ill")
    ]
    assert plain(served.attributes)["http.response.status_code"] == 200
    assert collector.resources[0]["service.name"] == "agentspec"
    assert "secret words" not in str(collector.spans)


async def test_a_failure_is_an_error_on_both_spans(
    start: StartGateway, up: Upstream, collector: Collector
):
    async with start(settings=settings(up, otlp_url=collector.url)) as gateway:
        answer = await ask(gateway, "refuses", {})
        row = gateway.journal.row
    assert answer.status_code == 400
    call = collector.named("chat refuses")
    assert call.status.code == 2  # ERROR
    assert plain(call.attributes)["error.type"] == (row.error_code or row.error_type)
    served = plain(collector.named("POST /v1/chat/completions").attributes)
    assert served["http.response.status_code"] == 400


async def test_metrics_add_up(start: StartGateway, up: Upstream, collector: Collector):
    async with start(settings=settings(up, otlp_url=collector.url, traces=False)) as gateway:
        for _ in range(3):
            await ask(gateway, "good", {})
    assert collector.spans == []
    used = collector.metrics["gen_ai.client.token.usage"].histogram.data_points
    sums = {plain(p.attributes)["gen_ai.token.type"]: (p.count, p.sum) for p in used}
    assert sums == {"input": (3, 36), "output": (3, 15)}
    (whole,) = collector.metrics["gen_ai.server.request.duration"].histogram.data_points
    assert whole.count == 3 and whole.explicit_bounds[0] == 0.01
    assert "error.type" not in plain(whole.attributes)


async def test_what_the_caller_does_not_record_is_not_sent(
    start: StartGateway, up: Upstream, collector: Collector
):
    async with start(settings=settings(up, otlp_url=collector.url)) as gateway:
        await ask(gateway, "good", {"traceparent": f"00-{TRACE}-{CALLER}-00"})
    assert collector.spans == []
    assert up.headers[0]["traceparent"].endswith("-00")


async def test_a_collector_that_hangs_holds_up_neither_answers_nor_the_end(
    start: StartGateway, up: Upstream, collector: Collector, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("agentspec.gateway.telemetry.CLOSING_S", 0.05)
    collector.hanging = True
    async with start(settings=settings(up, otlp_url=collector.url, timeout_s=1)) as gateway:
        assert (await ask(gateway, "good", {})).status_code == 200


def test_without_a_collector_a_callers_trace_goes_on_untouched():
    trace = begin({"traceparent": GIVEN, "tracestate": "a=b"})
    assert trace.upstream == {"traceparent": GIVEN, "tracestate": "a=b"}
    assert trace.trace_id == TRACE and not trace.recorded
    assert begin({}).upstream == {}


@pytest.mark.parametrize(
    "header",
    [
        "",
        f"00-{TRACE}-{CALLER}",
        f"ff-{TRACE}-{CALLER}-01",
        f"00-{'0' * 32}-{CALLER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{CALLER}-01",
        f"00-{TRACE}-{CALLER}-01-more",
        f"00-{TRACE}-{CALLER}-01\r\nx: y",
    ],
)
def test_a_malformed_header_begins_a_trace(header: str):
    trace = begin({"traceparent": header}, exporting=True)
    assert trace.trace_id != TRACE and trace.parent_id == "" and trace.recorded
    assert trace.upstream["traceparent"] == f"00-{trace.trace_id}-{trace.call_id}-01"


def test_later_versions_may_say_more():
    assert begin({"traceparent": f"01-{TRACE}-{CALLER}-01-more"}).trace_id == TRACE


@pytest.mark.parametrize(("chance", "expected"), [(0.0, {False}), (1.0, {True})])
def test_share_of_traces_that_begin_here(chance: float, expected: set[bool]):
    traces = [begin({}, exporting=True, chance=chance) for _ in range(300)]
    assert {trace.recorded for trace in traces} == expected


@pytest.mark.parametrize("names", ["v1.41", "latest"])
def test_every_measure_is_a_declared_metric_and_labels_are_bounded(names: str):
    record = RequestRecord(
        id="x",
        ts_ms=1,
        model="invented by a client",
        backend="b",
        backend_kind="engine",
        session_id="s",
        in_tok=7,
        out_tok=3,
        cache_write_tok=2,
        forced_tok=1,
        spec_steps=2,
        spec_drafted=4,
        spec_accepted=2,
        cost_nusd=1500,
        ttft_ms=10.0,
        tpot_ms=2.0,
        e2e_ms=20.0,
    )
    declared = {one.name for one in instruments(names)}
    told = [(one.name, value, at) for one, value, at in measures(record, names, frozenset({"m"}))]
    assert {name for name, _, _ in told} == declared
    allowed = {
        "gen_ai.operation.name",
        "gen_ai.provider.name",
        "gen_ai.request.model",
        "gen_ai.token.type",
        "agentspec.backend",
        "error.type",
    }
    for _, _, attributes in told:
        assert set(attributes) <= allowed and attributes["gen_ai.request.model"] == "other"
    assert ("agentspec.cost", 1.5e-6) in [(name, value) for name, value, _ in told]


def test_names_are_those_that_the_conventions_package_has():
    from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as attributes
    from opentelemetry.semconv._incubating.metrics import gen_ai_metrics as metrics

    theirs = {getattr(metrics, name) for name in dir(metrics) if name.startswith("GEN_AI_")}
    ours = {one.name for one in instruments("v1.41") if one.name.startswith("gen_ai.")}
    assert ours <= theirs
    names = {getattr(attributes, n) for n in dir(attributes) if n.startswith("GEN_AI_")}
    from agentspec.gateway.genai import call_span

    record = RequestRecord(id="x", ts_ms=1, backend="b", cache_write_tok=1, ttft_ms=1.0)
    told = {n for n in call_span(record, "v1.41", None)[1] if n.startswith("gen_ai.")}
    assert told <= names


@pytest.mark.parametrize(
    ("kind", "upstream", "expected"),
    [
        ("engine", "m", "agentspec"),
        ("anthropic", "m", "anthropic"),
        ("litellm", "gemini/g-3", "gcp.gemini"),
        ("litellm", "groq/x", "groq"),
        ("litellm", "gpt-5", "openai"),
    ],
)
def test_providers(kind: str, upstream: str, expected: str):
    record = RequestRecord(id="x", ts_ms=1, backend_kind=kind, upstream_model=upstream)
    assert provider(record) == expected


def test_without_the_package_the_setting_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    monkeypatch.delitem(sys.modules, "agentspec.gateway.otlp", raising=False)
    asked = Settings(telemetry=TelemetrySettings(otlp_url="http://127.0.0.1:4318"))
    with pytest.raises(SettingsError, match=r"agentspec\[otel\]"):
        telemetry_for(asked)


async def test_a_line_of_json_for_each_request(
    start: StartGateway, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.INFO, REQUESTS)
    caplog.handler.setFormatter(JsonLines())
    async with start() as gateway:
        await ask(gateway, "good", {"traceparent": GIVEN})
        row = gateway.journal.row
    lines = [json.loads(line) for line in caplog.text.splitlines() if REQUESTS in line]
    (line,) = [line for line in lines if line["logger"] == REQUESTS]
    assert (line["trace_id"], line["request_id"], line["status"]) == (TRACE, row.id, "ok")
    assert line["in_tok"] == 12 and "secret words" not in caplog.text


def test_a_traceback_is_one_line():
    trace = Trace(TRACE, CALLER, "b" * 16, "c" * 16, True, {})
    token = current.set(trace)
    try:
        raise ValueError("no\nway")
    except ValueError:
        record = logging.LogRecord("n", logging.ERROR, "f", 1, "said %s", ("so",), sys.exc_info())
        text = JsonLines().format(record)
    finally:
        current.reset(token)
    line = json.loads(text)
    assert "\n" not in text and line["message"] == "said so" and line["span_id"] == "b" * 16
    assert "ValueError" in line["error"] and line["ts"].endswith("Z")
