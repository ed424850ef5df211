"""/v1/messages: order of events, folding by the unchanged SDK, Anthropic's errors."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import pytest

from tests.gateway.scripts import REFUSALS, TEXT, WEATHER
from tests.gateway.sse import named_events

WHOLE = "".join(TEXT)
SAY_HI = [{"role": "user", "content": "hi"}]
TOOLS = [{"name": "weather", "input_schema": {"type": "object"}}, {"type": "web_search_20250305"}]


async def post(gateway, model: str, **more: Any):
    body = {"model": model, "max_tokens": 100, "messages": SAY_HI} | more
    return await gateway.http.post("/v1/messages?beta=true", json=body)


async def streamed(gateway, model: str, **more: Any) -> list[dict[str, Any]]:
    return named_events((await post(gateway, model, stream=True, **more)).text)


def check_order(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rules of a stream that ended well; returns the blocks, folded."""
    kinds = [e["type"] for e in events]
    assert kinds[0] == "message_start" and kinds[-2:] == ["message_delta", "message_stop"]
    assert "error" not in kinds and kinds.count("message_stop") == 1
    assert type(events[0]["message"]["usage"]["input_tokens"]) is int
    blocks: list[dict[str, Any]] = []
    opened: dict[str, Any] | None = None
    pieces = ""
    for event in events[1:-2]:
        assert event["index"] == len(blocks)
        if event["type"] == "content_block_start":
            assert opened is None
            opened = dict(event["content_block"])
            pieces = ""
        elif event["type"] == "content_block_delta":
            assert opened is not None
            delta = dict(event["delta"])
            kind = delta.pop("type")
            ((key, text),) = delta.items()
            if kind == "input_json_delta":
                pieces += text
            else:
                opened[key] += text
        else:
            assert opened is not None
            if opened["type"] == "tool_use":
                opened["input"] = json.loads(pieces)
            blocks.append(opened)
            opened = None
    assert opened is None
    return blocks


async def test_a_text_answer(gateway):
    events = await streamed(gateway, "good")
    assert check_order(events) == [{"type": "text", "text": WHOLE}]
    delta = events[-2]
    assert delta["delta"] == {"stop_reason": "end_turn", "stop_sequence": None}
    assert delta["usage"] == {
        "input_tokens": 4,
        "cache_read_input_tokens": 8,
        "cache_creation_input_tokens": 0,
        "output_tokens": 5,
    }
    row = gateway.journal.row
    assert (row.surface, row.status, row.in_tok, row.cached_tok) == ("messages", "ok", 12, 8)


async def test_early_counts_and_the_stop_string_are_passed_on(gateway):
    events = await streamed(gateway, "counts")
    check_order(events)
    assert events[0]["message"]["usage"]["input_tokens"] == 4
    assert events[0]["message"]["usage"]["cache_read_input_tokens"] == 8
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "END"}
    assert events[-2]["usage"]["output_tokens"] == 5


@pytest.mark.parametrize(
    ("thinking", "shown"),
    [
        (None, []),
        ({"type": "disabled"}, []),
        ({"type": "enabled", "budget_tokens": 1024}, ["Let me see."]),
        ({"type": "adaptive", "display": "omitted"}, [""]),
    ],
)
async def test_the_blocks_of_an_agents_answer(gateway, thinking, shown):
    more = {"tools": TOOLS} | ({"thinking": thinking} if thinking else {})
    events = await streamed(gateway, "agent", **more)
    blocks = check_order(events)
    assert [b["thinking"] for b in blocks if b["type"] == "thinking"] == shown
    text, weather, now = blocks[len(shown) :]
    assert text == {"type": "text", "text": "I will look."}
    assert (weather["id"], weather["name"], weather["input"]) == ("call_a", "weather", WEATHER)
    assert now["name"] == "now" and now["input"] == {} and now["id"].startswith("toolu_")
    assert events[-2]["delta"]["stop_reason"] == "tool_use"
    whole = (await post(gateway, "agent", **more)).json()
    ids = {"id"}
    assert [{k: v for k, v in b.items() if k not in ids} for b in whole["content"]] == [
        {k: v for k, v in b.items() if k not in ids} for b in blocks
    ]
    assert whole["stop_reason"] == "tool_use" and whole["usage"]["input_tokens"] == 4


async def test_thinking_comes_back_and_is_understood(gateway, up):
    for display in ("summarized", "omitted"):
        thinking = {"type": "adaptive", "display": display}
        first = (await post(gateway, "agent", thinking=thinking)).json()
        answer = {"role": "assistant", "content": first["content"]}
        results = [
            {"type": "tool_result", "tool_use_id": b["id"], "content": "1"}
            for b in reversed(first["content"])
            if b["type"] == "tool_use"
        ]
        told = {"role": "user", "content": [{"type": "text", "text": "Go on."}, *results]}
        await post(gateway, "good", messages=[*SAY_HI, answer, told])
        _, said, *shown, asked = up.seen[-1]["messages"]
        assert said["reasoning_content"] == "Let me see." and said["content"] == "I will look."
        assert [c["id"] for c in said["tool_calls"]] == [m["tool_call_id"] for m in shown][::-1]
        assert asked == {"role": "user", "content": "Go on."}


async def test_folding_by_the_anthropic_sdk(gateway):
    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
        asked: Any = {"model": "agent", "max_tokens": 100, "messages": SAY_HI}
        async with client.messages.stream(**asked) as stream:
            folded = await stream.get_final_message()
        whole = await client.messages.create(**asked)
    for answer in (folded, whole):
        text, weather, now = (block.to_dict() for block in answer.content)
        assert text["text"] == "I will look."
        assert weather["type"] == now["type"] == "tool_use"
        assert (weather["input"], now["input"]) == (WEATHER, {})
        assert (answer.stop_reason, answer.usage.input_tokens) == ("tool_use", 4)
        assert (answer.usage.cache_read_input_tokens, answer.usage.output_tokens) == (8, 5)


async def test_a_threaded_run_of_the_sdk_falls_back_to_the_whole_history(gateway, up):
    refused = await post(gateway, "good", thread={"type": "create"})
    error = refused.json()["error"]
    assert refused.status_code == 400 and error["type"] == "invalid_request_error"
    assert error["details"]["error_code"] == "thread_unsupported_request"
    assert error["details"]["unsupported"] == ["thread"]


async def test_the_sdks_tool_runner_goes_round_without_threads(gateway, up):
    @anthropic.beta_async_tool
    async def weather(city: str, days: list[Any]) -> str:
        """The weather."""
        return f"sunny in {city}"

    @anthropic.beta_async_tool
    async def now() -> str:
        """The time."""
        return "noon"

    async with anthropic.AsyncAnthropic(base_url=gateway.url, api_key="k", max_retries=0) as client:
        runner = client.beta.messages.tool_runner(
            model="agent",
            max_tokens=100,
            messages=[{"role": "user", "content": "hi"}],
            tools=[weather, now],
            max_iterations=2,
        )
        async for _ in runner:
            pass
    roles = [m["role"] for m in up.seen[-1]["messages"]]
    assert roles == ["user", "assistant", "tool", "tool"]
    assert [m["content"] for m in up.seen[-1]["messages"][2:]] == ["sunny in Zürich", "noon"]
    assert [t["function"]["name"] for t in up.seen[-1]["tools"]] == ["weather", "now"]
    codes = [row.error_code for row in gateway.journal.closed]
    assert codes == ["thread_unsupported_request", None, None]


async def test_the_limit_drops_a_call_that_it_cut(gateway):
    events = await streamed(gateway, "cut_in_call", tools=TOOLS)
    (block,) = check_order(events)
    assert block["input"] == {"a": 1}
    assert events[-2]["delta"]["stop_reason"] == "max_tokens"
    assert "rm -rf" not in json.dumps(events)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "status", "kind", "words"),
    [
        ("busy", 429, "rate_limit_error", "Slow down."),
        ("broken", 502, "api_error", "It broke."),
        ("overloaded", 529, "overloaded_error", "Full."),
        ("too_long", 400, "invalid_request_error", "prompt is too long"),
        ("nope", 404, "not_found_error", "does not exist"),
    ],
)
async def test_errors_are_spelled_as_anthropic_does(gateway, stream, model, status, kind, words):
    answer = await post(gateway, model, stream=stream)
    assert answer.status_code == status
    body = answer.json()
    assert body["type"] == "error" and body["error"]["type"] == kind
    assert words in body["error"]["message"]
    assert body["request_id"] == answer.headers["request-id"] == gateway.journal.row.id
    if model == "busy":
        assert answer.headers["retry-after"] == "7"


async def test_anthropics_own_errors_keep_their_words(gateway):
    """Claude Code drops a beta by the words of the refusal. The id is ours, as in the header."""
    answer = await post(gateway, "anthropics_own", stream=True)
    status, told = REFUSALS["anthropics_own"]
    assert answer.status_code == status
    assert answer.json() == told | {"request_id": answer.headers["request-id"]}
    assert answer.headers["retry-after"] == "7"


async def test_a_bad_field_is_named(gateway):
    bad = [{"role": "user", "content": [{"type": "text", "text": 3}]}]
    answer = await post(gateway, "good", messages=bad)
    assert answer.status_code == 400
    assert "messages[0].content[0].text" in answer.json()["error"]["message"]


async def test_the_billing_line_is_stripped_for_self_hosted_models(gateway, up):
    line = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1a2b3;"}
    rest = {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}
    await post(gateway, "good", system=[line, rest])
    assert up.seen[-1]["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_unknown_fields_betas_and_blocks_are_accepted(gateway, up):
    more = {
        "context_management": {"edits": []},
        "mcp_servers": [],
        "container": None,
        "output_config": {"effort": "high"},
        "thinking": {"type": "adaptive"},
        "betas": ["x"],
        "messages": [
            {"role": "user", "content": [{"type": "container_upload", "file_id": "f"}]},
            {"role": "assistant", "content": [{"type": "server_tool_use", "id": "s", "name": "n"}]},
            {"role": "system", "content": "Mind the gap."},
            *SAY_HI,
        ],
    }
    assert (await post(gateway, "good", **more)).status_code == 200
    assert [m["role"] for m in up.seen[-1]["messages"]] == ["system", "user"]
    assert up.seen[-1]["reasoning_effort"] == "high"


async def test_deferred_tools_are_shown_when_a_search_found_them(gateway, up):
    schema = {"type": "object"}
    tools = [{"name": "find", "input_schema": schema}] + [
        {"name": name, "input_schema": schema, "defer_loading": True} for name in ("a", "b")
    ]
    found = {"type": "tool_reference", "tool_name": "b"}
    use = {"type": "tool_use", "id": "t", "name": "find", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [found]}
    history = [
        *SAY_HI,
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    ]
    for messages, names in ((SAY_HI, ["find"]), (history, ["find", "b"])):
        await post(gateway, "good", tools=tools, messages=messages)
        assert [t["function"]["name"] for t in up.seen[-1]["tools"]] == names


async def test_both_credentials_are_taken(start, monkeypatch):
    monkeypatch.setenv("GATEWAY_KEY", "secret")
    async with start(server={"api_key_env": "GATEWAY_KEY"}) as gateway:
        refused = await post(gateway, "good")
        assert refused.status_code == 401
        assert refused.json()["error"]["type"] == "authentication_error"
        for header in ({"x-api-key": "secret"}, {"authorization": "Bearer secret"}):
            gateway.http.headers.update(header)
            assert (await post(gateway, "good")).status_code == 200
            gateway.http.headers.pop(next(iter(header)))
