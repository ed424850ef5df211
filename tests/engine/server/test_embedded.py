"""The embedded model behind the engine's HTTP: what only a model that can write shows."""

from __future__ import annotations

import json
from typing import Any

import aiohttp
import jsonschema
import pytest
import pytest_asyncio
import torch

from agentspec.engine.build import build_service
from agentspec.settings import DEFAULT_MODEL, Settings
from tests.engine.server.running import Server, serving

pytestmark = [pytest.mark.model, pytest.mark.asyncio(loop_scope="module")]

EMOJI: Any = [{"role": "user", "content": "Answer with emojis only: 🌊🐬🌈🌞. More, please!"}]
SCHEMA: Any = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer", "minimum": 1}},
    "required": ["path"],
    "additionalProperties": False,
}
READ: Any = {"type": "function", "function": {"name": "read_file", "parameters": SCHEMA}}
ASK: Any = [{"role": "user", "content": "Read the first 5 lines of the file /etc/hosts."}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(model_path):
    torch.set_num_threads(1)
    async with serving(build_service(Settings()), DEFAULT_MODEL) as running:
        yield running


async def test_a_stream_never_splits_a_character(server: Server):
    fields = {"messages": EMOJI, "temperature": 0, "max_tokens": 24}
    streamed = await server.stream(**fields)
    assert any(ord(c) > 0xFFFF for c in streamed["content"]), "it must have written some"
    assert "\ufffd" not in "".join(streamed["pieces"]).rstrip("\ufffd")
    assert streamed["content"] == await server.text(**fields)


async def test_tokenize_counts_what_a_request_is_billed(server: Server):
    body = {"messages": ASK, "tools": [READ]}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{server.url}/tokenize", json=body) as answer,
    ):
        counted = await answer.json()
    usage = (await server.ask(max_tokens=1, **body))["usage"]
    assert counted["count"] == len(counted["tokens"]) == usage["prompt_tokens"]


@pytest.mark.parametrize("choice", ["auto", "required"])
async def test_a_call_is_whole_and_valid_or_there_is_none(server: Server, choice: str):
    fields = {"messages": ASK, "tools": [READ], "tool_choice": choice, "temperature": 0}
    streamed = await server.stream(max_tokens=60, **fields)
    assert "tool_call" not in streamed["content"]
    names, arguments = streamed["calls"][::2], streamed["calls"][1::2]
    assert set(names) <= {"read_file"}
    for text in arguments:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert (streamed["finish_reason"] == "tool_calls") == bool(names) or choice == "auto"
    assert names or choice == "auto"
