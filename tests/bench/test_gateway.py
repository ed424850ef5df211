"""The stand-in upstream and the load client against each other and against what they claim."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from openai import AsyncOpenAI

from agentspec.bench.client import Sample, Target, closed_loop
from agentspec.bench.gateway import Pool, _row, agent_body, faithful, run
from agentspec.bench.upstream import MODEL, Script, Upstream

FAST = Script(delay_s=0.0, chunk_s=0.0, chunks=5)


@asynccontextmanager
async def upstream(script: Script) -> AsyncIterator[int]:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Upstream(script), "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize("stream", [False, True])
async def test_every_answer_is_faithful(stream: bool):
    async with upstream(FAST) as port:
        bodies = [agent_body(tokens, stream, 0) for tokens in (10, 1000)]
        samples, _ = await closed_loop(Target("direct", port), bodies, 3, 20)
    assert len(samples) == 20
    assert {s.body_index for s in samples} == {0, 1}
    assert all(faithful(s, stream, FAST) for s in samples)
    assert all(0 < s.first_ms <= s.total_ms for s in samples)


async def test_the_openai_sdk_reads_the_stand_in():
    """An independent reader: text, usage and end of a stream, and of a whole answer."""
    async with (
        upstream(FAST) as port,
        AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none") as client,
    ):
        ask = {"model": MODEL, "messages": [{"role": "user", "content": "go"}]}
        whole = await client.chat.completions.create(**ask)
        stream = await client.chat.completions.create(
            **ask, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content == "".join(FAST.pieces)
    assert chunks[-1].usage == whole.usage


async def _stream_sample() -> Sample:
    async with upstream(FAST) as port:
        samples, _ = await closed_loop(Target("d", port), [agent_body(10, True, 0)], 1, 1)
    return samples[0]


@pytest.mark.parametrize(
    "harm",
    [
        lambda body: body.replace(b"data: [DONE]\n\n", b""),
        lambda body: body.replace(b"gateway ", b"gate "),
        lambda body: body[: body.index(b"data:", 10)] + b"data: [DONE]\n\n",
        lambda body: body.replace(b"on ", b"", 1),
    ],
)
async def test_a_changed_stream_is_not_faithful(harm):
    sample = await _stream_sample()
    assert faithful(sample, True, FAST)
    sample.body = harm(sample.body)
    assert not faithful(sample, True, FAST)


async def test_joined_chunks_are_not_faithful():
    """One chunk in, one chunk out: text that arrives in fewer pieces came later than it could."""
    sample = await _stream_sample()
    first, second = FAST.pieces[:2]
    events = sample.body.split(b"\n\n")
    del events[1]
    events[0] = events[0].replace(json.dumps(first).encode(), json.dumps(first + second).encode())
    sample.body = b"\n\n".join(events)
    assert not faithful(sample, True, FAST)


async def test_a_server_that_hangs_up_is_an_error_in_the_sample():
    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.close()

    server = await asyncio.start_server(hang_up, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        samples, _ = await closed_loop(Target("d", port), [agent_body(10, False, 0)], 2, 4)
    assert len(samples) == 4
    assert all(s.error and not faithful(s, False, FAST) for s in samples)


def test_added_is_the_difference_of_quantiles():
    def pool(times: list[float]) -> Pool:
        return Pool([Sample(0, 200, t, t + 5, b"") for t in times], seconds=2.0)

    direct, through = pool([10, 20, 30]), pool([11, 23, 36])
    row = _row(through, direct, True, FAST)
    assert row["added_p50_ms"] == pytest.approx(3)
    assert row["rps"] == pytest.approx(1.5)
    assert row["wrong"] == row["n"] == 3
    assert _row(direct, direct, True, FAST)["added_p99_ms"] == 0


def test_bodies_have_their_size():
    for tokens in (1000, 10_000):
        size = len(agent_body(tokens, False, 0))
        assert 3 * tokens < size < 6 * tokens


@pytest.mark.parametrize("stream", [False, True])
def test_through_the_real_gateway(stream: bool):
    """Real processes, ledger on: what comes through is what was sent."""
    document = run(concurrency=[2], count=6, streams=[stream], script=FAST, seed=0)
    direct, through = document["results"]
    assert (direct["target"], through["target"]) == ("direct", "agentspec")
    assert through["wrong"] == 0 and through["n"] == direct["n"] == 6
    assert through["cpu_ms"] > 0
