"""Chat completions in front of other servers: a client gets whole calls, or none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk

from tests.gateway.scripts import AGENT, TEXT, WEATHER


def chunks(text: str) -> tuple[list[dict[str, Any]], bool]:
    """(the chunks, whether [DONE] ended them)."""
    found = [line[6:] for line in text.split("\n") if line.startswith("data: ")]
    done = found[-1] == "[DONE]"
    return [json.loads(data) for data in (found[:-1] if done else found)], done


def calls(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    deltas = [choice["delta"] for chunk in found for choice in chunk.get("choices", ())]
    return [call for delta in deltas for call in delta.get("tool_calls", ())]


async def test_calls_in_pieces_come_whole_and_in_time(gateway):
    found, done = chunks((await gateway.chat("agent", stream=True)).text)
    assert done
    weather, now = calls(found)
    assert (weather["index"], weather["id"], weather["type"]) == (0, "call_a", "function")
    assert json.loads(weather["function"]["arguments"]) == WEATHER
    assert (now["index"], now["function"]) == (1, {"name": "now", "arguments": "{}"})
    assert now["id"] not in ("", "call_a")
    assert found[-1]["choices"][0]["finish_reason"] == "tool_calls"
    said = [c["choices"][0]["delta"].get("content") or "" for c in found]
    assert "".join(said) == "I will look."


@pytest.mark.parametrize(("script", "text"), [("tools", None), ("good", "".join(TEXT))])
async def test_an_answer_of_calls_alone_has_no_text_for_the_sdk(gateway, script, text):
    """As when it is not streamed, although its server opens it with an empty text."""
    found, _ = chunks((await gateway.chat(script, stream=True)).text)
    state = ChatCompletionStreamState()
    for one in found:
        state.handle_chunk(ChatCompletionChunk.model_validate(one))
    message = state.get_final_completion().choices[0].message
    assert (message.content, bool(message.tool_calls)) == (text, text is None)


async def test_the_limit_drops_a_call_that_it_cut(gateway):
    found, done = chunks((await gateway.chat("cut_in_call", stream=True)).text)
    assert done and "rm -rf" not in json.dumps(found)
    assert [c["function"]["arguments"] for c in calls(found)] == ['{"a": 1}']
    assert found[-1]["choices"][0]["finish_reason"] == "length"
    whole = (await gateway.chat("cut_in_call")).json()["choices"][0]
    assert [c["function"]["arguments"] for c in whole["message"]["tool_calls"]] == ['{"a": 1}']
    assert whole["finish_reason"] == "length"


async def test_a_torn_call_claimed_whole_is_an_error(gateway):
    unstarted = await gateway.chat("torn_call", stream=True)
    assert unstarted.status_code == 502 and "cat" not in unstarted.text
    found, done = chunks((await gateway.chat("torn_after_text", stream=True)).text)
    assert not done and calls(found) == []
    assert found[-1]["error"]["code"] == "malformed_tool_call"
    whole = await gateway.chat("torn_call")
    assert whole.status_code == 502 and "cat" not in whole.text
    assert [row.status for row in gateway.journal.closed] == ["error"] * 3


@pytest.mark.parametrize("sent", range(1, len(AGENT) + 2))
async def test_a_backend_that_dies_leaves_no_torn_call(gateway, sent):
    found, done = chunks((await gateway.chat(f"dies_after_{sent}", stream=True)).text)
    assert not done and "error" in found[-1]
    assert all(isinstance(json.loads(c["function"]["arguments"]), dict) for c in calls(found))


async def test_our_engines_calls_are_passed_as_they_come(start):
    async with start(kind="engine") as gateway:
        found, done = chunks((await gateway.chat("tools", stream=True)).text)
    assert done
    assert [c["function"]["arguments"] for c in calls(found)] == ["", '{"a"', ": 1}"]
