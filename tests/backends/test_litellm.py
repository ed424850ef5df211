"""The litellm backend against the stand-in upstream, in one process of its own.

litellm takes seconds to import and warns about its dependencies; here it has a fresh interpreter,
which also shows that nothing of ours imports it before the first request.
"""

from __future__ import annotations

import json
import subprocess
import sys

from agentspec.backends.foreign import ForeignAnswer, ForeignChoice, ForeignText
from agentspec.backends.litellm_reasoning import Trimmed

PROGRAM = """
import asyncio, json, os, sys
os.environ["UPSTREAM_KEY"] = "upstream-secret"
from agentspec.backends.base import Turn
from agentspec.backends.registry import build
from agentspec.settings import BackendSettings, ModelSettings, Settings
from agentspec.wire.chat import decode_request
from agentspec.wire.errors import AgentspecError
from agentspec.wire.think import ThinkFilter
from tests.gateway.upstream import running_upstream
import msgspec

def turn(model, **more):
    body = {"model": "mine", "messages": [{"role": "user", "content": "x"}],
            "api_base": "http://elsewhere.invalid", "extra_headers": {"a": "b"}, "tools": []}
    raw = json.dumps(body | more).encode()
    return Turn("1", decode_request(raw), msgspec.json.decode(raw, type=dict[str, msgspec.Raw]),
                "openai/" + model, 9)

SHORT = ("dies", "no_finish", "only_done", "no_choices", "an_error_with_200", "gave_up")

async def text(chunks):
    out = ""
    async for chunk in chunks:
        for choice in chunk.choices:
            out += choice.delta.content or ""
    return out

async def fails(call):
    try:
        await call
    except AgentspecError as error:
        return [type(error).__name__, getattr(error, "status", None), error.code, error.message]

async def main():
    found = {"lazy": "litellm" not in sys.modules}
    async with running_upstream() as up:
        settings = Settings(
            backends={"b": BackendSettings(kind="litellm", url=up.url + "/v1",
                                           api_key_env="UPSTREAM_KEY", first_byte_timeout_s=20)},
            models={"mine": ModelSettings(backends=["b"])},
        )
        backend = build(settings)["b"]
        whole = await backend.complete(turn("good", temperature=0.5))
        found["whole"] = [whole.choices[0].message.content, whole.usage.prompt_tokens, whole.model]
        found["sent"] = up.seen[-1]
        found["authorization"] = up.headers[-1]["Authorization"]
        found["streamed"] = await text(backend.chat(turn("good", stream=True)))
        for model in ("busy", "too_long", "wrong_key", "broken"):
            before = len(up.seen)
            found[model] = await fails(backend.complete(turn(model)))
            found[model + "_tries"] = len(up.seen) - before
        found["aborted"] = await fails(backend.complete(turn("aborts")))
        found["aborted_stream"] = await fails(text(backend.chat(turn("aborts", stream=True))))
        for model in SHORT:
            found[model] = await fails(text(backend.chat(turn(model, stream=True))))
        chunks = [chunk async for chunk in backend.chat(turn("refuses", stream=True))]
        found["refusal"] = "".join(c.delta.refusal or "" for k in chunks for c in k.choices)
        thinks = (await backend.complete(turn("thinks"))).choices[0].message
        found["thinks"] = [thinks.reasoning_content, thinks.content]
        think = ThinkFilter()
        chunks = [think.chunk(chunk) async for chunk in backend.chat(turn("thinks", stream=True))]
        deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
        found["thinks_streamed"] = ["".join(delta.reasoning_content or "" for delta in deltas),
                                    "".join(delta.content or "" for delta in deltas)]
        stream = backend.chat(turn("waits", stream=True))
        await anext(stream)
        await stream.aclose()
        await asyncio.wait_for(up.left.wait(), 10)
        found["closed"] = True
    found["gone"] = await fails(backend.complete(turn("good")))
    await backend.aclose()
    print(json.dumps(found))

asyncio.run(main())
"""


def test_litellm_answers_fails_and_stops_like_any_backend():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=180, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    assert found["lazy"] and found["closed"]
    assert found["whole"] == ["Grüße, Wélt 🌍!", 12, "mine"]
    assert found["refusal"] == "I will not."
    assert found["thinks"] == found["thinks_streamed"] == ["Let me see.", "Yes.\n"]
    assert found["streamed"] == "Grüße, Wélt 🌍!"
    assert found["sent"]["temperature"] == 0.5 and found["sent"]["model"] == "good"
    assert not {"tools", "api_base", "extra_headers"} & set(found["sent"])
    assert found["authorization"] == "Bearer upstream-secret"
    assert found["busy"][:2] == ["UpstreamFailed", 429]
    assert found["too_long"][1:3] == [400, "context_length_exceeded"]
    assert found["wrong_key"][:3] == ["UpstreamFailed", None, "upstream_credential_refused"]
    assert found["broken"][:2] == ["UpstreamFailed", 500]
    assert found["busy_tries"] == found["broken_tries"] == 1
    assert found["aborted"] == found["aborted_stream"]
    assert found["aborted"][0] == found["dies"][0] == "UpstreamDisconnected"
    assert found["gone"][0] == "UpstreamUnreachable"
    for model in ("no_finish", "only_done", "no_choices", "an_error_with_200", "gave_up"):
        assert found[model] and found[model][0].startswith("Upstream"), model


def chunks_of(*told: tuple[str | None, str | None]) -> list[tuple[str | None, str | None]]:
    """(reasoning, text) of each chunk once its edges are trimmed."""
    trimmed, found = Trimmed(), []
    for reasoning, text in told:
        delta = ForeignText(reasoning_content=reasoning, content=text)
        trimmed.read(ForeignAnswer([ForeignChoice(delta=delta)]))
        assert isinstance(delta.content, str | None)
        found.append((delta.reasoning_content, delta.content))
    return found


def test_white_space_around_reasoning_is_dropped_however_it_is_cut():
    cut = (("\n", None), ("a ", None), ("\n b", None), ("\n", None), (None, "\n"), (None, " c"))
    assert chunks_of(*cut, (None, "\nd ")) == [
        *((None, None), ("a", None), (" \n b", None), (None, None)),
        *((None, ""), (None, "c"), (None, "\nd ")),
    ]
    assert chunks_of(("\na \n b\n", "\n c\nd ")) == [("a \n b", "c\nd ")]


def test_white_space_before_text_is_dropped_behind_reasoning_alone():
    assert chunks_of((None, "\n"), (None, " c")) == [(None, "\n"), (None, " c")]
    assert chunks_of(("\n\n", None), (None, "\n\nc")) == [(None, None), (None, "c")]
