"""A real llama-server as a backend: its usage, its window, its load, its acceptance."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from agentspec.backends.base import Turn
from agentspec.backends.load import TellsLoad
from agentspec.backends.registry import build
from agentspec.bench import processes
from agentspec.bench.llamacpp import LlamaCpp
from agentspec.settings import BackendSettings, ModelSettings, Settings, with_defaults
from agentspec.wire.chat import decode_request
from agentspec.wire.errors import UpstreamFailed
from tests.peers.conftest import SERVER

pytestmark = [pytest.mark.peers, pytest.mark.model]
TEXT = "one two three four five six seven eight nine ten " * 6


def backend(port: int):
    settings = Settings(
        backends={"b": BackendSettings(kind="llamacpp", url=f"http://127.0.0.1:{port}")},
        models={"m": ModelSettings(backends=["b"])},
    )
    return build(with_defaults(settings))["b"]


def turn(text: str, **more: object) -> Turn:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], "temperature": 0}
    raw = msgspec.json.encode(body | more)
    return Turn(
        "1", decode_request(raw), msgspec.json.decode(raw, type=dict[str, msgspec.Raw]), "m", 9
    )


async def test_usage_window_and_load(llama_port: int):
    made = backend(llama_port)
    try:
        assert await made.health() and isinstance(made, TellsLoad)
        assert [card.context_length for card in await made.models()] == [4096]
        first = await made.complete(turn(TEXT, max_tokens=8))
        again = await made.complete(turn(TEXT, max_tokens=8))
        assert first.usage and again.usage and again.usage.completion_tokens == 8
        assert again.usage.prompt_tokens == first.usage.prompt_tokens
        details = again.usage.prompt_tokens_details
        assert details and details.cached_tokens > 0.8 * again.usage.prompt_tokens
        idle = await made.load()
        assert idle is not None and idle.running == 0
        running = asyncio.create_task(made.complete(turn(TEXT, max_tokens=400)))
        async with asyncio.timeout(60):
            while (busy := await made.load()) is None or not busy.running:
                assert not running.done()
        running.cancel()
    finally:
        await made.aclose()


async def test_a_prompt_beyond_the_window_has_the_code_that_agents_know(llama_port: int):
    made = backend(llama_port)
    try:
        with pytest.raises(UpstreamFailed) as failed:
            await made.complete(turn(TEXT * 100, max_tokens=8))
        assert failed.value.code == "context_length_exceeded" and failed.value.status == 400
    finally:
        await made.aclose()


async def test_acceptance_of_its_drafts(model_path, tmp_path):
    """With n-gram drafts on text that repeats itself. All tokens are accounted for."""
    if not SERVER.exists():
        pytest.skip("no llama-server: run scripts/peers.sh")
    port = processes.free_port()
    command = LlamaCpp(SERVER, model_path, 2).command("ngram-simple", port, 1, 2048)
    with (
        processes.started(command, tmp_path) as process,
        processes.wait_http(f"http://127.0.0.1:{port}/health", process, 300),
    ):
        made = backend(port)
        try:
            answer = await made.complete(turn(f"Repeat this: {TEXT}", max_tokens=96))
        finally:
            await made.aclose()
    report = answer.agentspec
    assert isinstance(report, msgspec.Struct) and answer.usage
    drafted, accepted = report.totals()  # type: ignore[attr-defined]
    assert list(report.sources) == ["llamacpp"] and 0 < accepted <= drafted  # type: ignore[attr-defined]
    assert 1 + accepted + report.steps == answer.usage.completion_tokens  # type: ignore[attr-defined]
