"""Completions, embeddings, counts, compaction, model lists: the smaller parts of the protocols."""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    Settings,
    SettingsError,
    with_defaults,
)
from tests.gateway.scripts import TEXT

WHOLE = "".join(TEXT)


def sdk(gateway) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key="k", max_retries=0)


@pytest.mark.parametrize("kind", ["openai", "engine"])
async def test_completions_by_the_sdk(start, up, kind):
    async with start(kind=kind) as gateway, sdk(gateway) as client:
        asked: dict[str, Any] = {"model": "good", "prompt": "def add("}
        whole = await client.completions.create(**asked)
        more = {"stream": True, "stream_options": {"include_usage": True}}
        chunks = [chunk async for chunk in await client.completions.create(**asked, **more)]
        rows = gateway.journal.closed
    assert whole.object == "text_completion" and whole.choices[0].text == WHOLE
    texts = [c.choices[0].text for c in chunks if c.choices]
    assert "".join(texts) == WHOLE
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason == "stop"
    for usage in (chunks[-1].usage, whole.usage):
        assert usage is not None and (usage.prompt_tokens, usage.completion_tokens) == (12, 5)
    assert [(r.surface, r.status, r.out_tok) for r in rows] == [("completions", "ok", 5)] * 2
    sent = up.seen[-1]
    if kind == "openai":  # in its own protocol, as it was sent
        assert sent["path"] == "/v1/completions" and sent["prompt"] == "def add("
    else:
        assert sent["messages"] == [{"role": "user", "content": "def add("}]
        assert sent["agentspec"]["raw"] is True and sent["max_tokens"] == 16


async def test_log_probabilities_of_completions_are_passed_on(start):
    async with start(kind="openai") as gateway, sdk(gateway) as client:
        asked: dict[str, Any] = {"model": "good", "prompt": "x", "logprobs": 1}
        whole = await client.completions.create(**asked)
        chunks = [c async for c in await client.completions.create(**asked, stream=True)]
    streamed = [c.choices[0].logprobs for c in chunks if c.choices and c.choices[0].logprobs]
    told = whole.choices[0].logprobs
    assert told is not None and told.tokens == list(TEXT)
    assert [token for found in streamed for token in found.tokens or ()] == told.tokens
    offsets = [at for found in streamed for at in found.text_offset or ()]
    assert offsets == told.text_offset == [len("".join(TEXT[:i])) for i in range(len(TEXT))]
    assert told.top_logprobs == [{"z": -2.0}] * len(TEXT)
    assert told.token_logprobs == [-0.5] * len(TEXT)


async def test_a_suffix_goes_to_the_engine_which_knows_the_model(start, up):
    async with start(kind="engine") as gateway, sdk(gateway) as client:
        await client.completions.create(model="good", prompt="a", suffix="b", echo=True)
    assert up.seen[-1]["agentspec"]["suffix"] == "b"


@pytest.mark.parametrize("prompt", [["a", "b"], [1, 2], [], None])
async def test_prompts_that_are_not_one_text_are_refused(gateway, prompt):
    body = {"model": "good", "prompt": prompt}
    answer = await gateway.http.post("/v1/completions", json=body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "prompt"


async def test_embeddings_by_the_sdk(gateway, up):
    async with sdk(gateway) as client:
        binary = await client.embeddings.create(model="good", input="a")
        floats = await client.embeddings.create(model="good", input=["a"], encoding_format="float")
    assert binary.data[0].embedding == floats.data[0].embedding == [1.0]
    assert binary.model == "good"
    assert [seen.get("encoding_format") for seen in up.seen] == ["base64", "float"]
    row = gateway.journal.closed[0]
    assert (row.surface, row.status, row.in_tok, row.out_tok) == ("embeddings", "ok", 3, 0)
    assert row.backend == "up"


async def test_a_model_without_embeddings_says_so(start):
    async with start(kind="engine") as gateway:
        body = {"model": "good", "input": "a"}
        answer = await gateway.http.post("/v1/embeddings", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "unsupported_model"


@pytest.mark.parametrize("kind", ["openai", "engine"])
async def test_tokens_are_counted_by_the_backend(start, up, kind):
    async with start(kind=kind) as gateway:
        async with sdk(gateway) as client:
            counted = await client.responses.input_tokens.count(model="good", input="hi")
        assert (counted.object, counted.input_tokens) == ("response.input_tokens", 321)
        async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k") as client:
            count = await client.messages.count_tokens(
                model="good",
                messages=[{"role": "user", "content": "hi"}],
                tools=[{"name": "f", "input_schema": {"type": "object"}}],
            )
        assert count.input_tokens == 321
        assert gateway.journal.closed == []
    assert up.seen[-1]["path"] == "/tokenize"
    assert up.seen[-1]["tools"][0]["function"]["name"] == "f"


async def test_a_count_that_nobody_knows_is_estimated(gateway):
    body = {"model": "vllm", "messages": [{"role": "user", "content": "x" * 400}]}
    answer = await gateway.http.post("/v1/messages/count_tokens", json=body)
    assert answer.headers["x-agentspec-token-count"] == "estimated"
    assert 90 < answer.json()["input_tokens"] < 130
    unknown = await gateway.http.post("/v1/messages/count_tokens", json=body | {"model": "nope"})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")


async def test_a_compaction_takes_the_place_of_what_it_summarises(gateway, up):
    async with sdk(gateway) as client:
        done = await client.responses.compact(model="good", input="a long story")
        assert done.object == "response.compaction" and done.usage.output_tokens == 5
        items: Any = [item.to_dict() for item in done.output]
        await client.responses.create(
            model="good", input=[*items, {"role": "user", "content": "Go on."}]
        )
    summary, asked = up.seen[-1]["messages"]
    assert summary["content"].endswith(WHOLE) and asked["content"] == "Go on."
    assert [row.surface for row in gateway.journal.closed] == ["compact", "responses"]


def test_an_alias_that_is_a_model_already_is_refused():
    taken = {
        "a": ModelSettings(backends=["up"], aliases=["b"]),
        "b": ModelSettings(backends=["up"], context_tokens=10),
    }
    backends = {"up": BackendSettings(kind="openai", url="http://127.0.0.1:1")}
    with pytest.raises(SettingsError, match=r"models\.a\.aliases: 'b'"):
        with_defaults(Settings(backends=backends, models=taken))
    del taken["b"]
    once = with_defaults(Settings(backends=backends, models=taken))
    assert list(with_defaults(once).models) == ["a", "b"]
    assert once.models["b"].upstream_name == "a"


async def test_models_in_both_shapes(start, up):
    settings = Settings(
        backends={"up": BackendSettings(kind="openai", url=up.url)},
        models={"good": ModelSettings(backends=["up"], aliases=["claude-local"])},
    )
    async with start(settings=settings) as gateway:
        async with sdk(gateway) as client:
            assert [m.id async for m in client.models.list()] == ["good", "claude-local"]
        async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k") as client:
            found = [m async for m in await client.models.list(limit=1000)]
            assert [m.id for m in found] == ["good", "claude-local"]
            assert found[1].type == "model" and found[1].display_name == "claude-local"
            assert (await client.models.retrieve("good")).max_input_tokens == 4096
            with pytest.raises(anthropic.NotFoundError) as missing:
                await client.models.retrieve("nope")
            assert missing.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
            answer = await client.messages.create(
                model="claude-local", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
            )
        assert answer.model == "claude-local" and up.seen[-1]["model"] == "good"
        assert (await gateway.http.head("/")).status_code == 200
