"""``agentspec protocol`` against a scripted endpoint, and its verdict against given figures."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from agentspec import cli
from agentspec.bench.protocol.cli import check
from agentspec.bench.protocol.endpoint import Answer, Endpoint, kv_share, probe
from agentspec.bench.protocol.page import page
from agentspec.bench.workloads import BenchError


@dataclass(slots=True)
class Clock:
    """Seconds that the script lets pass; it counts how often it was looked at."""

    now_s: float = 0.0
    looks: int = 0

    def __call__(self) -> float:
        self.looks += 1
        return self.now_s

    async def seen(self, looks: int) -> None:
        """Until somebody looked again: no later second may fall on this piece."""
        while self.looks <= looks:
            await asyncio.sleep(0)


@dataclass(slots=True)
class Script:
    """plain_s, drafted_s: of each of ``tokens`` pieces, on the test's own clock. last: fields
    beside the usage of the last chunk, of a request with drafts."""

    owner: str = "agentspec"
    tokens: int = 4
    plain_s: float = 0.02
    drafted_s: float = 0.005
    last: dict[str, Any] = field(default_factory=dict)
    details: dict[str, int] | None = None
    status: int = 200
    cut: bool = False
    metrics: str | None = None
    bodies: list[dict[str, Any]] = field(default_factory=list)
    clock: Clock = field(default_factory=Clock)

    async def check(self, url: str, *more: str) -> dict[str, Any]:
        return await check(arguments(url, *more), None, self.clock)


class Scripted:
    def __init__(self, script: Script):
        self._script = script

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"data": [{"id": "m", "owned_by": self._script.owner}]})

    async def metrics(self, request: web.Request) -> web.Response:
        if self._script.metrics is None:
            raise web.HTTPNotFound
        return web.Response(text=self._script.metrics)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        script, body = self._script, await request.json()
        script.bodies.append(body)
        if script.status != 200:
            return web.Response(status=script.status, text="busy")
        off = body.get("agentspec", {}).get("speculation") == "off"
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for _ in range(script.tokens):
            script.clock.now_s += script.plain_s if off else script.drafted_s
            looks = script.clock.looks
            await _send(response, {"choices": [{"index": 0, "delta": {"content": "x"}}]})
            await script.clock.seen(looks)
        if not script.cut:
            await _send(response, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
        usage: dict[str, Any] = {"prompt_tokens": 3, "completion_tokens": script.tokens}
        if script.details:
            usage["completion_tokens_details"] = script.details
        last = {} if off else script.last
        await _send(response, {"choices": [], "usage": usage} | last)
        await response.write(b"data: [DONE]\n\n")
        return response


async def _send(response: web.StreamResponse, event: dict[str, Any]) -> None:
    await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")


@asynccontextmanager
async def served(script: Script) -> AsyncIterator[str]:
    handler, app = Scripted(script), web.Application()
    app.router.add_get("/v1/models", handler.models)
    app.router.add_get("/metrics", handler.metrics)
    app.router.add_post("/v1/chat/completions", handler.chat)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()


def arguments(url: str, *more: str) -> Any:
    words = ["protocol", "--url", url, "--concurrency", "1,2", "--n", "1", "--rounds", "6"]
    return cli.build_parser().parse_args([*words, "--workloads", "chat", *more])


def ours(drafted: int, accepted: int, steps: int = 3) -> dict[str, Any]:
    source = {"drafted": drafted, "accepted": accepted}
    return {"agentspec": {"v": 1, "sources": {"dspark": source}, "steps": steps}}


async def test_the_verdict_flips_with_the_delays():
    fast = Script(last=ours(4, 3))
    async with served(fast) as url:
        document = await fast.check(url)
    assert document["verdict"] == "adopt"
    assert all(r["answer"] == "pays" for r in document["results"] if r["arm"] == "speculative")
    slow = Script(plain_s=0.005, drafted_s=0.02, last=fast.last)
    async with served(slow) as url:
        document = await slow.check(url)
    assert document["verdict"] == "do not adopt"


async def test_the_verdict_flips_with_acceptance():
    """As fast as before, but of a model's drafts a quarter stands."""
    script = Script(last=ours(4, 1))
    async with served(script) as url:
        document = await script.check(url)
    assert document["verdict"] == "do not adopt"
    assert [point["rule"] for point in document["acceptance"]] == ["fails", "fails"]


async def test_both_arms_get_the_same_prompts_and_nothing_twice():
    script = Script(last=ours(4, 3))
    async with served(script) as url:
        await script.check(url)
    counts = {"off": 0, "auto": 0}
    for body in script.bodies:
        counts[body["agentspec"]["speculation"]] += 1
    # A warm-up of 1 and 2 requests, then six rounds of 1 and 2, in each arm.
    assert counts == {"off": 21, "auto": 21}
    scopes = {body["agentspec"]["cache_scope"] for body in script.bodies}
    assert len(scopes) == len(script.bodies)


async def test_a_foreign_endpoint_without_baseline_gets_no_verdict():
    script = Script(owner="somebody")
    async with served(script) as url:
        document = await script.check(url)
    assert document["verdict"] == "no verdict"
    assert "--baseline-url" in document["baseline"]
    assert all("agentspec" not in body for body in script.bodies)
    assert [point["rule"] for point in document["acceptance"]] == ["unknown", "unknown"]
    said = " ".join(document["reasons"] + document["memory"]["said"])
    assert "tells nothing of acceptance" in said and "unknown, the endpoint" in said


async def test_a_second_endpoint_is_the_baseline():
    told = {"timings": {"draft_n": 6, "draft_n_accepted": 4, "predicted_n": 8}}
    drafted = Script(owner="llamacpp", last=told)
    plain = Script(owner="llamacpp", drafted_s=0.02, clock=drafted.clock)
    async with served(drafted) as url, served(plain) as other:
        document = await drafted.check(url, "--baseline-url", other)
    assert document["verdict"] == "adopt"
    share = document["acceptance"][0]["shares"]["unknown"]
    assert (share["drafted"], share["accepted"]) == (36, 24)
    assert all(body["cache_prompt"] is False for body in (*drafted.bodies, *plain.bodies))
    assert len(plain.bodies) == 21


@pytest.mark.parametrize(
    ("last", "details", "told"),
    [
        ({}, {"accepted_prediction_tokens": 3, "rejected_prediction_tokens": 1}, (4, 3)),
        ({}, {"accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0}, None),
        (
            {
                "metrics": {
                    "speculative_decoding": {
                        "num_draft_tokens": 8,
                        "num_accepted_draft_tokens": 2,
                        "num_spec_steps": 2,
                    }
                }
            },
            None,
            (8, 2),
        ),
        (
            {
                "sglext": {
                    "spec_tokens_details": {
                        "spec_num_proposed_drafts": 9,
                        "spec_num_correct_drafts": 3,
                        "spec_verify_ct": 3,
                    }
                }
            },
            None,
            (9, 3),
        ),
    ],
)
async def test_acceptance_in_each_spelling(
    last: dict[str, Any], details: dict[str, int] | None, told: tuple[int, int] | None
):
    script = Script(last=last, details=details)
    async with served(script) as url, aiohttp.ClientSession() as session:
        endpoint = await probe(session, url, None, None, None)
        endpoint.clock = script.clock
        answer = await endpoint.ask(_body(endpoint), 0)
    assert answer.error is None and answer.out_tokens == 4
    assert (None if answer.sources is None else sum_of(answer)) == told


def _body(endpoint: Endpoint) -> dict[str, Any]:
    messages = {"messages": [{"role": "user", "content": "hi"}]}
    return endpoint.body(messages, 8, speculate=True, fresh="a")


def sum_of(answer: Answer) -> tuple[int, int]:
    (pair,) = (answer.sources or {}).values()
    return pair


@pytest.mark.parametrize(
    ("script", "said"),
    [(Script(status=503), "status 503: busy"), (Script(cut=True), "broke off")],
)
async def test_failures_are_told(script: Script, said: str):
    async with served(script) as url:
        document = await script.check(url)
    assert said in document["reasons"][0]
    assert document["verdict"] != "adopt"
    assert sum(row["failed"] for row in document["results"]) == 36


async def test_an_endpoint_that_lacks_the_model():
    script = Script()
    async with served(script) as url:
        with pytest.raises(BenchError, match="--model.*'other'.*it has m"):
            await script.check(url, "--model", "other")


async def test_memory_that_is_told():
    page = "# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc 0.97\n"
    script = Script(last=ours(4, 3), metrics=page)
    async with served(script) as url:
        document = await script.check(url)
    assert document["memory"]["kv_left"] == pytest.approx(0.03)
    assert any("no headroom" in reason for reason in document["reasons"])


def test_pages_of_our_own_engine():
    text = (
        'agentspec_engine_pages{state="used"} 6.0\n'
        'agentspec_engine_pages{state="cached"} 2.0\n'
        'agentspec_engine_pages{state="free"} 4.0\n'
    )
    assert kv_share(text) == 0.5
    assert kv_share("something else") is None


async def test_the_page_is_self_contained():
    script = Script(owner="<b>", last=ours(4, 3))
    async with served(script) as url:
        document = await script.check(url)
    text = page(document)
    assert "<script" not in text and "<b>" not in text
    assert not re.search(r'(src|href)="', text)
    assert [int(n) for n in re.findall(r"<h2>(\d)\.", text)] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--url", "http://127.0.0.1:9/v1"], "cannot be read"),
        (["--url", "http://127.0.0.1:9/v1", "--draft", "x"], "--draft"),
        (["--draft", "/does/not/exist"], "--draft"),
        (["--api-key-env", "NOT_SET_HERE", "--url", "http://127.0.0.1:9/v1"], "NOT_SET_HERE"),
    ],
)
def test_bad_input_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["protocol", *words]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.model
def test_our_own_engine(model_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """The whole command: an engine of its own, both arms, both files."""
    files = {kind: tmp_path / f"report.{kind}" for kind in ("html", "json")}
    words = ["protocol", "--concurrency", "2", "--n", "1", "--rounds", "1", "--max-tokens", "12"]
    words += ["--workloads", "code", "--html", str(files["html"]), "--json", str(files["json"])]
    assert cli.main(words) == 0
    document = json.loads(files["json"].read_text())
    assert [row["arm"] for row in document["results"]] == ["plain", "speculative"]
    assert all(row["n"] == 2 and row["failed"] == 0 for row in document["results"])
    assert document["endpoint"]["kind"] == "agentspec"
    assert document["acceptance"][0]["told"] == 2
    assert 0.0 < document["memory"]["kv_left"] <= 1.0
    assert document["memory"]["rss_mib"] > 100
    assert "Verdict: not decided" in capsys.readouterr().out
    assert files["html"].read_text().startswith("<!doctype html>")
