"""/v1/responses: order of events, folding by the unchanged SDK, what is remembered."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.gateway.scripts import TEXT, WEATHER
from tests.gateway.sse import named_events

WHOLE = "".join(TEXT)
TOOLS = [
    {"type": "function", "name": "weather", "parameters": {"type": "object"}},
    {"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "now"}]},
    {"type": "web_search", "external_web_access": True},
    {"type": "local_shell"},
    {"type": "tool_search", "execution": "client", "parameters": {}},
]


async def post(gateway, model: str, **more: Any):
    body = {"model": model, "input": "hi"} | more
    return await gateway.http.post("/v1/responses", json=body)


async def streamed(gateway, model: str, **more: Any) -> list[dict[str, Any]]:
    return named_events((await post(gateway, model, stream=True, **more)).text)


def check_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of a stream that ended well; returns the items."""
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    assert [e["type"] for e in events[:2]] == ["response.created", "response.in_progress"]
    ends = [e for e in events if e["type"] in ("response.completed", "response.incomplete")]
    assert ends == events[-1:]
    assert not any(e["type"] == "response.failed" for e in events)
    items: list[dict[str, Any]] = []
    opened: dict[str, Any] | None = None
    for event in events[2:-1]:
        assert event["output_index"] == len(items)
        if event["type"] == "response.output_item.added":
            assert opened is None
            opened = event["item"]
        elif event["type"] == "response.output_item.done":
            assert opened is not None and event["item"]["id"] == opened["id"]
            items.append(event["item"])
            opened = None
        else:
            assert opened is not None and event["item_id"] == opened["id"]
    assert opened is None
    assert events[-1]["response"]["output"] == items
    return items


def check_usage(body: dict[str, Any], total: int = 17) -> None:
    usage = body["usage"]
    assert usage["input_tokens"] + usage["output_tokens"] == usage["total_tokens"] == total
    assert type(usage["input_tokens_details"]["cached_tokens"]) is int
    assert type(usage["output_tokens_details"]["reasoning_tokens"]) is int


async def test_a_text_answer(gateway):
    events = await streamed(gateway, "good")
    (item,) = check_order(events)
    assert item["content"][0]["text"] == WHOLE and item["status"] == "completed"
    deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
    assert deltas == TEXT
    check_usage(events[-1]["response"])
    row = gateway.journal.row
    assert (row.surface, row.status, row.in_tok, row.out_tok) == ("responses", "ok", 12, 5)
    assert gateway.journal.opened[0].surface == "responses"


async def test_the_order_of_an_agents_answer(gateway):
    events = await streamed(gateway, "agent", tools=TOOLS)
    reasoning, message, weather, now = check_order(events)
    assert reasoning["type"] == "reasoning" and reasoning["content"][0]["text"] == "Let me see."
    assert message["content"][0]["text"] == "I will look."
    assert weather["name"] == "weather" and json.loads(weather["arguments"]) == WEATHER
    assert weather["call_id"] == "call_a" and now["call_id"] not in ("", "call_a")
    assert (now["name"], now["arguments"]) == ("now", "{}")
    assert events[-1]["type"] == "response.completed"
    row = gateway.journal.row
    assert (row.tool_calls, row.n_tools, row.workload) == (2, 4, "tool")


async def test_the_stream_and_the_whole_answer_say_the_same(gateway):
    for model in ("good", "agent", "cut_in_call"):
        items = check_order(await streamed(gateway, model, tools=TOOLS))
        whole = (await post(gateway, model, tools=TOOLS)).json()

        def plain(item: dict[str, Any]) -> dict[str, Any]:
            kept = {k: v for k, v in item.items() if k not in ("id", "call_id")}
            if "arguments" in kept:
                kept["arguments"] = json.loads(kept["arguments"])
            return kept

        if model == "cut_in_call":  # the whole answer of the stand-in says more
            whole["output"] = [i for i in whole["output"] if i["type"] == "function_call"]
        assert [plain(i) for i in items] == [plain(i) for i in whole["output"]]
        check_usage(whole)


async def test_folding_by_the_openai_sdk(gateway):
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key="k", max_retries=0
    ) as client:
        async with client.responses.stream(model="agent", input="hi") as stream:
            async for _ in stream:
                pass
            folded = await stream.get_final_response()
        whole = await client.responses.create(model="agent", input="hi")
    assert [i.type for i in folded.output] == [i.type for i in whole.output]
    assert folded.output_text == whole.output_text == "I will look."
    for answer in (folded, whole):
        calls = [i for i in answer.output if i.type == "function_call"]
        assert [json.loads(c.arguments) for c in calls] == [WEATHER, {}]
        assert answer.usage is not None and answer.usage.input_tokens_details.cached_tokens == 8


async def test_the_limit_drops_a_call_that_it_cut(gateway):
    events = await streamed(gateway, "cut_in_call", tools=TOOLS)
    (call,) = check_order(events)
    assert call["arguments"] == '{"a": 1}'
    body = events[-1]["response"]
    assert events[-1]["type"] == "response.incomplete"
    assert body["incomplete_details"] == {"reason": "max_output_tokens"}
    check_usage(body)
    assert "rm -rf" not in json.dumps(events)


async def test_namespaces_come_back(gateway, up):
    named = [{"type": "namespace", "name": "clock", "tools": [{"type": "function", "name": "t"}]}]
    await post(gateway, "good", tools=named, tool_choice="auto")
    assert up.seen[-1]["tools"][0]["function"]["name"] == "clock__t"
    assert up.seen[-1]["tools"][0]["type"] == "function"
    history = [
        {"type": "function_call", "call_id": "c1", "namespace": "clock", "name": "t",
         "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": "noon"},
    ]  # fmt: skip
    await post(gateway, "good", tools=named, input=history)
    said, told = up.seen[-1]["messages"]
    assert said["tool_calls"][0]["function"]["name"] == "clock__t"
    assert told == {"role": "tool", "content": "noon", "tool_call_id": "c1"}


async def test_previous_responses_and_items_are_remembered(gateway, up):
    first = (await post(gateway, "agent", instructions="Be brief.")).json()
    calls = [i for i in first["output"] if i["type"] == "function_call"]
    results = [
        {"type": "function_call_output", "call_id": c["call_id"], "output": "ok"} for c in calls
    ]
    more = {"previous_response_id": first["id"], "input": results}
    second = (await post(gateway, "good", **more)).json()
    roles = [m["role"] for m in up.seen[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert up.seen[-1]["messages"][1]["reasoning_content"] == "Let me see."
    assert second["previous_response_id"] == first["id"]
    items = [{"type": "item_reference", "id": i["id"]} for i in first["output"]]
    await post(gateway, "good", input=[{"role": "user", "content": "hi"}, *items, *results])
    assert up.seen[-1]["messages"] == up.seen[-2]["messages"]


@pytest.mark.parametrize("store", [True, False])
async def test_what_is_not_kept_is_refused(gateway, store):
    first = (await post(gateway, "good", store=store)).json()
    name = first["id"] if not store else "resp_unknown"
    refused = await post(gateway, "good", previous_response_id=name)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "previous_response_not_found"
    item = first["output"][0]["id"] if not store else "msg_unknown"
    refused = await post(gateway, "good", input=[{"type": "item_reference", "id": item}])
    assert refused.json()["error"]["code"] == "item_not_found"
    assert refused.json()["error"]["param"] == "input[0]"


async def test_a_custom_tool_is_called_with_text(gateway, up):
    custom = {"type": "custom", "name": "weather", "format": {"type": "text"}}
    broken = await streamed(gateway, "agent", tools=[custom])
    assert broken[-1]["type"] == "response.failed"  # no 'input' among the arguments
    assert up.seen[-1]["tools"][0]["function"]["parameters"]["required"] == ["input"]
    history = [{"type": "custom_tool_call", "call_id": "c", "name": "weather", "input": "*** x\n"}]
    await post(gateway, "good", tools=[custom], input=history)
    call = up.seen[-1]["messages"][0]["tool_calls"][0]["function"]
    assert json.loads(call["arguments"]) == {"input": "*** x\n"}


async def test_reasoning_comes_back_sealed_and_is_understood(gateway, up):
    more = {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}
    first = (await post(gateway, "agent", store=False, **more)).json()
    reasoning = first["output"][0]
    assert reasoning["summary"] == [{"type": "summary_text", "text": "Let me see."}]
    echo = {"type": "reasoning", "summary": [], "content": None}
    echo["encrypted_content"] = reasoning["encrypted_content"]
    await post(gateway, "good", input=[echo, first["output"][1]])
    (said,) = up.seen[-1]["messages"]
    assert said["reasoning_content"] == "Let me see." and said["content"] == "I will look."


async def test_errors_before_the_first_byte_are_http_errors(gateway):
    refused = await post(gateway, "too_long", stream=True)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    bad = await post(gateway, "good", input=[{"role": "user", "content": 3}])
    assert bad.json()["error"]["param"] == "input[0].content"
    assert (await post(gateway, "nope")).status_code == 404
    assert [row.status for row in gateway.journal.closed] == ["error"] * 3
