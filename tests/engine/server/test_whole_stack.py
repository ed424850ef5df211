"""A tiny random Llama behind the HTTP server: tokenizer, grammars, drafts, pages, all of them real.

Its text is noise, which is the point: what holds for noise holds because the engine makes it hold.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import jsonschema
import pytest
import pytest_asyncio
import torch

from agentspec.engine.build import build_service
from agentspec.settings import Settings, SettingsError
from tests.engine.model import tiny, tiny_vocabulary
from tests.engine.server.running import HI, serving

MODEL = "tiny"
SCHEMA: Any = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "maxLength": 12},
        "mode": {"enum": ["read", "write"]},
        "lines": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["path", "mode"],
    "additionalProperties": False,
}
TOOL: Any = {"type": "function", "function": {"name": "open", "parameters": SCHEMA}}


def settings(folder: Path, **changes: Any) -> Settings:
    chosen = Settings()
    for name, value in {
        "weights": str(folder),
        "model": MODEL,
        "dtype": "fp64",
        "threads": 1,
        "context_tokens": 1024,
        "kv_tokens": 4096,
        "step_tokens": 256,
        "tool_format": "smollm2",
        **changes,
    }.items():
        setattr(chosen.engine, name, value)
    return chosen


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A safetensors folder with a tokenizer: 3 layers, byte-level vocabulary."""
    path = tmp_path_factory.mktemp("tiny")
    shape = tiny.Shape(vocab=tiny_vocabulary.SIZE + 1, context=1024)
    tiny_vocabulary.write_folder(path)
    return tiny.write_folder(path, shape, tiny.random_weights(shape), eos_token_id=2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(folder, tmp_path_factory):
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        cache = tmp_path_factory.mktemp("cache")
        patch.setattr("agentspec.engine.cost.user_cache_dir", lambda: cache)
        service = build_service(settings(folder))
        assert list(cache.rglob("*.json")), "the measured cost curve is kept"
    async with serving(service, MODEL) as running:
        yield running


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize("prompt", ["the thing", "in the end", "123 ü"])
async def test_a_stream_folds_to_the_whole_answer(server, prompt):
    fields = {"messages": [{"role": "user", "content": prompt}], "temperature": 0}
    whole = await server.ask(max_tokens=40, **fields)
    streamed = await server.stream(max_tokens=40, **fields)
    (choice,) = whole["choices"]
    assert streamed["content"] == choice["message"]["content"] != ""
    assert streamed["finish_reason"] == choice["finish_reason"]
    assert streamed["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]


async def test_the_stop_string_that_was_met_is_named(server):
    fields = {"temperature": 0, "max_tokens": 40, "logprobs": None}
    text = (await server.ask(**fields))["choices"][0]["message"]["content"]
    stop = next(text[at : at + 2] for at in range(1, len(text)) if text[at : at + 2].isascii())
    whole = (await server.ask(stop=["never met", stop], **fields))["choices"][0]
    assert whole["message"]["content"] == text[: text.index(stop)]
    assert (whole["finish_reason"], whole["stop_reason"]) == ("stop", stop)


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "seed": 3}])
async def test_drafts_do_not_change_the_text(server, sampling):
    texts = [
        await server.text(max_tokens=60, agentspec={"speculation": how}, **sampling)
        for how in ("off", "auto", ["suffix"])
    ]
    assert texts[0] == texts[1] == texts[2]


async def test_calls_of_noise_meet_their_schema(server):
    for seed in range(4):
        whole = await server.ask(
            tools=[TOOL],
            tool_choice="required",
            parallel_tool_calls=False,
            temperature=1.5,
            seed=seed,
            max_tokens=400,
        )
        (choice,) = whole["choices"]
        assert choice["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] is None
        for call in choice["message"]["tool_calls"]:
            assert call["function"]["name"] == "open"
            jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)
        assert whole["agentspec"]["sources"]["forced"]["accepted"] > 10


async def test_a_streamed_call_equals_a_whole_one(server):
    fields = {"tools": [TOOL], "tool_choice": "required", "temperature": 0, "max_tokens": 300}
    (choice,) = (await server.ask(parallel_tool_calls=False, **fields))["choices"]
    streamed = await server.stream(parallel_tool_calls=False, **fields)
    (call,) = choice["message"]["tool_calls"]
    assert streamed["calls"] == [call["function"]["name"], call["function"]["arguments"]]
    assert (streamed["content"], streamed["finish_reason"]) == ("", "tool_calls")


async def test_no_limit_tears_a_call(server):
    fields = {"tools": [TOOL], "tool_choice": "required", "seed": 5, "parallel_tool_calls": False}
    full = await server.ask(max_tokens=400, **fields)
    (complete,) = full["choices"][0]["message"]["tool_calls"]
    tokens = full["usage"]["completion_tokens"]
    for limit in (2, 9, tokens // 2, tokens - 20, tokens - 9, tokens - 1, tokens, tokens + 1):
        whole = await server.ask(max_tokens=limit, **fields)
        (choice,) = whole["choices"]
        assert whole["usage"]["completion_tokens"] <= limit
        assert choice["message"]["content"] in ("", None)
        if choice["finish_reason"] == "length":
            assert "tool_calls" not in choice["message"]
        else:
            (call,) = choice["message"]["tool_calls"]
            assert call["function"] == complete["function"]


async def test_json_answers_meet_their_schema(server):
    form = {"type": "json_schema", "json_schema": {"name": "f", "schema": SCHEMA}}
    for seed in range(3):
        text = await server.text(response_format=form, seed=seed, max_tokens=300)
        jsonschema.validate(json.loads(text), SCHEMA)
    text = await server.text(response_format={"type": "json_object"}, seed=1, max_tokens=60)
    assert isinstance(json.loads(text), dict)


async def test_a_stop_string_ends_the_text_before_it(server):
    text = await server.text(temperature=0, max_tokens=40)
    stop = text[11:14]
    cut = await server.ask(temperature=0, max_tokens=40, stop=["never seen", stop])
    assert cut["choices"][0]["message"]["content"] == text[: text.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"


async def test_logprobs_spell_the_text(server):
    whole = await server.ask(temperature=0, max_tokens=20, logprobs=True, top_logprobs=2)
    (choice,) = whole["choices"]
    entries = choice["logprobs"]["content"]
    spelled = b"".join(bytes(entry["bytes"]) for entry in entries)
    assert spelled.decode(errors="replace") == choice["message"]["content"]
    for entry in entries:
        assert entry["logprob"] == entry["top_logprobs"][0]["logprob"] <= 0, "greedy takes the top"


async def test_choices_share_their_prompt(server):
    long = [{"role": "user", "content": "the only prompt of its kind: " + "xyz " * 60}]
    whole = await server.ask(messages=long, n=3, max_tokens=4, seed=1, temperature=2)
    alone = await server.text(messages=long, max_tokens=4, seed=1, temperature=2)
    usage = whole["usage"]
    assert len({choice["message"]["content"] for choice in whole["choices"]}) > 1
    assert whole["choices"][0]["message"]["content"] == alone
    assert usage["prompt_tokens_details"]["cached_tokens"] < 32, "nobody had asked it before"
    stats = await server.service.loop.stats()
    # Less than one prompt is computed again: whole pages come from the first choice.
    assert stats.prefix_hit_tokens > 2 * (usage["prompt_tokens"] - 32)


async def test_who_leaves_frees_the_pages(server):
    body = {"model": MODEL, "messages": HI, "stream": True, "logit_bias": {"2": -100, "3": -100}}
    async with aiohttp.ClientSession() as http:
        answer = await http.post(f"{server.url}/v1/chat/completions", json=body | {"n": 3})
        await answer.content.readline()
        answer.close()
    while (await server.service.loop.stats()).running:
        await asyncio.sleep(0.01)
    stats = await server.service.loop.stats()
    assert (stats.pages_used, stats.waiting) == (0, 0)
    await server.service.loop.call(server.engine.check_integrity)


async def test_the_busy_time_of_all_requests_is_the_engines(server):
    before = (await server.service.loop.stats()).busy_us
    answers = await asyncio.gather(
        server.ask(max_tokens=30, seed=1),
        server.ask(max_tokens=20, tools=[TOOL], tool_choice="required"),
        server.ask(max_tokens=10, n=2),
    )
    after = (await server.service.loop.stats()).busy_us
    for phase in ("prefill", "decode", "draft", "grammar"):
        told = sum(answer["agentspec"]["busy_us"][phase] for answer in answers)
        assert told == getattr(after, phase) - getattr(before, phase)


async def test_a_deadline_that_passes_is_an_error(server):
    body = {"model": MODEL, "messages": HI, "agentspec": {"deadline_ms": 1}}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/v1/chat/completions", json=body) as answer,
    ):
        error = (await answer.json())["error"]
    assert (answer.status, error["code"]) == (504, "deadline_exceeded")


@pytest.mark.parametrize(
    "changes",
    [
        {"tool_format": "klingon"},
        {"tool_format": "../grammars/smollm2"},
        {"draft_sources": ["suffix", "oracle"]},
    ],
)
async def test_settings_that_cannot_be_built_are_named(folder, changes):
    (key,) = changes
    with pytest.raises(SettingsError, match=f"engine.{key}"):
        build_service(settings(folder, **changes))
