"""What a request demands of the answer as a whole, from backends that may not keep to it."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest

from agentspec.backends import checking
from agentspec.backends.base import Turn
from agentspec.wire.chat import ChatChunk, ChatResponse
from agentspec.wire.errors import InvalidRequest, UpstreamFailed
from tests.backends.test_checking import BODY, GOOD, WRONG, Scripted, both, streamed, turn, whole

OTHER = {"type": "function", "function": {"name": "other", "parameters": {"type": "object"}}}
TWO = [*BODY["tools"], OTHER]
FORCED = {"type": "function", "function": {"name": "other"}}
NONE = "call no tool"
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [FORCED]}}


@both
@pytest.mark.parametrize(
    ("more", "calls", "instruction"),
    [
        ({"tools": []}, [GOOD], NONE),
        ({"tools": None}, [GOOD], NONE),
        ({"tool_choice": "none"}, [GOOD], NONE),
        ({"tools": TWO, "tool_choice": FORCED}, [GOOD], "these alone may be called: 'other'"),
        ({"tools": TWO, "tool_choice": ALLOWED}, [GOOD], "these alone may be called: 'other'"),
        ({"tool_choice": "required"}, [], "Answer again, and call the tool 'read'"),
        ({"tools": TWO, "tool_choice": "required"}, [], "Answer again, and call a tool"),
        ({}, [WRONG], "arguments that satisfy"),
    ],
)
async def test_what_tool_choice_demands_is_held(
    asking, more: dict[str, Any], calls: list[str], instruction: str
):
    asked, answer = turn(**more), ("", calls, "tool_calls" if calls else "stop")
    backend = Scripted(answer, answer)
    with pytest.raises(UpstreamFailed) as failed:
        await asking(backend, asked)
    assert failed.value.code == "invalid_tool_call" and backend.answers == []
    told = msgspec.json.decode(backend.turns[-1].body["messages"])[-1]["content"]
    assert instruction in told


@both
async def test_a_demand_that_is_kept_at_last_passes(asking):
    backend = Scripted(("", [], "stop"), ("", [GOOD], "tool_calls"))
    seen = await asking(backend, turn(tool_choice="required"))
    assert seen["calls"] == [json.loads(GOOD)] and seen["roles"] == 1
    seen = await asking(Scripted(("Cut", [], "length")), turn(tool_choice="required"))
    assert (seen["content"], seen["reasons"]) == ("Cut", ["length"])


async def test_text_instead_of_a_demanded_call_is_no_clean_end():
    backend = Scripted(("Text.", [], "stop"))
    with pytest.raises(UpstreamFailed, match="had to call the tool 'read'"):
        await streamed(backend, turn(tool_choice="required"))
    assert len(backend.turns) == 1


@both
async def test_a_tool_choice_that_names_no_tool_is_refused(asking):
    with pytest.raises(InvalidRequest, match="no function named 'other'"):
        await asking(Scripted(), turn(tool_choice=FORCED))


SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMATS: list[dict[str, Any]] = [
    {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    {"type": "json_object"},
]


@pytest.mark.parametrize("wanted", FORMATS)
async def test_the_form_of_an_answer_is_held(wanted: dict[str, Any]):
    asked = turn(tools=None, response_format=wanted)
    seen = await whole(Scripted(("no", [], "stop"), ('{"a": 1}', [], "stop")), asked)
    assert seen["content"] == '{"a": 1}' and seen["tokens"] == 30
    for asking in (streamed, whole):
        seen = await asking(Scripted(('<think>[</think>{"a": 1}', [], "stop")), asked)
        assert seen["reasons"] == ["stop"]
        seen = await asking(Scripted(('{"a', [], "length")), asked)
        assert (seen["content"], seen["reasons"]) == ('{"a', ["length"])
        with pytest.raises(UpstreamFailed, match="response_format") as failed:
            await asking(Scripted(*[("5", [], "stop")] * 2), asked)
        assert failed.value.code == "invalid_answer"
    asked = turn(response_format=wanted)
    assert (await whole(Scripted(("Hm.", [GOOD], "tool_calls")), asked))["content"] == "Hm."


@both
@pytest.mark.parametrize("before", ["", "Hm. "])
async def test_of_two_calls_where_one_may_be_made_the_first_is_passed_on(asking, before: str):
    asked = turn(parallel_tool_calls=False)
    seen = await asking(Scripted((before, [GOOD, WRONG], "tool_calls")), asked)
    assert (seen["content"] or "", seen["calls"]) == (before, [json.loads(GOOD)])
    assert (asked.calls.valid, asked.calls.dropped, asked.calls.retried) == (1, 1, 0)


@both
@pytest.mark.parametrize("wanted", FORMATS)
@pytest.mark.parametrize(
    "text",
    [
        '```json\n{"a": 1}\n```',
        '\ufeff{"a": 1}',
        '{"a": 1}<|im_end|>',
        '{"a": 1}\n</s>',
        '\n{"a": 1}',
        'Hm.</think>{"a": 1}',
        '<think>[</think>```\n{"a": 1}\n```<|eot_id|>',
    ],
)
async def test_what_stands_around_json_is_left_out(asking, wanted: dict[str, Any], text: str):
    seen = await asking(Scripted((text, [], "stop")), turn(tools=None, response_format=wanted))
    assert seen["content"].removeprefix("<think>[</think>").strip() == '{"a": 1}'


@both
@pytest.mark.parametrize("text", ["no", "```\nno\n```", '{"a": 1} and more'])
async def test_what_is_no_json_is_asked_for_again_or_an_error(asking, text: str):
    asked = turn(tools=None, response_format=FORMATS[0])
    backend = Scripted((text, [], "stop"), ('{"a": 1}', [], "stop"))
    if asking is streamed and text.startswith("{"):
        with pytest.raises(UpstreamFailed, match="response_format"):
            await asking(backend, asked)
        return
    seen = await asking(backend, asked)
    assert (seen["content"], seen["roles"], seen["reasons"]) == ('{"a": 1}', 1, ["stop"])
    seen = await asking(Scripted(("Hm.", [GOOD], "stop")), turn(response_format=FORMATS[0]))
    assert (seen["content"], seen["calls"]) == ("Hm.", [json.loads(GOOD)])


async def test_json_streams_as_it_comes():
    chunks: list[str] = []
    backend = Scripted(('{"a": 1}', [], "stop"))
    asked = turn(tools=None, response_format=FORMATS[0])
    async for chunk in checking.chat(backend, asked):
        chunks += [c.delta.content for c in chunk.choices if isinstance(c.delta.content, str)]
    assert [piece for piece in chunks if piece] == list('{"a": 1}')


async def test_what_a_vendor_wants_back_with_a_call_is_kept():
    signed = {"google": {"thought_signature": "S"}}
    call = {"index": 0, "id": "c", "function": {"name": "read", "arguments": GOOD}}
    events = Events(event("tool_calls", tool_calls=[call | {"extra_content": signed}]))
    found = []
    async for chunk in checking.chat(events, turn()):
        found += [call for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert [call.extra_content for call in found] == [signed]


async def test_of_two_ends_the_one_that_says_more_counts():
    for ends in (["stop", "tool_calls"], ["tool_calls", "stop"]):
        seen = await streamed(Events(event(content="Hm."), *map(event, ends)), turn())
        assert seen["reasons"] == ["tool_calls"]


@pytest.mark.parametrize("retries", [None, 1])
async def test_a_grammar_is_refused_where_it_cannot_be_held(retries: int | None):
    asked = turn(tools=None, agentspec={"grammar": 'start: "x"'})
    for run in (
        checking.complete(Scripted(retries=retries), asked),
        anext(checking.chat(Scripted(retries=retries), asked)),
    ):
        with pytest.raises(InvalidRequest) as refused:
            await run
        assert refused.value.param == "agentspec.grammar"


class Events(Scripted):
    """Streams these chunks."""

    def __init__(self, *events: dict[str, Any]):
        super().__init__()
        self.events = events

    async def _chunks(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        for event in self.events:
            yield self._chunk(turn, event)


def event(reason: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}


async def test_a_call_behind_the_finish_reason_is_checked_and_delivered():
    def call(text: str) -> dict[str, Any]:
        function = {"name": "read", "arguments": text}
        return event(tool_calls=[{"index": 0, "id": "c", "function": function}])

    end, counts = event("stop"), {"choices": [], "usage": {"prompt_tokens": 1}}
    for events in ([end, call(GOOD), counts], [event("stop", content="Hm."), counts, call(GOOD)]):
        seen = await streamed(Events(*events), turn())
        assert seen["calls"] == [json.loads(GOOD)]
        assert (seen["reasons"], seen["tokens"]) == (["stop"], 1)
    with pytest.raises(UpstreamFailed, match="required property"):
        await streamed(Events(event(content="Hm."), end, call(WRONG)), turn())


@pytest.mark.parametrize(
    ("heads", "count"),
    [
        # vLLM: another id on each piece of one call.
        ([("a", "read", ""), ("b", None, '{"path"'), ("c", None, ': "a"}')], 1),
        # Gemini's proxies: no ids, one index.
        ([(None, "read", GOOD), (None, "read", GOOD)], 2),
        ([("", "read", GOOD), ("", "read", ""), ("", None, GOOD), ("", "read", "")], 2),
        # The name on every piece.
        ([("a", "read", '{"path"'), ("a", "read", ': "a"}'), ("a", "read", "")], 1),
    ],
)
async def test_only_a_name_begins_a_call(heads: list[tuple[str | None, str | None, str]], count):
    events = [
        event(tool_calls=[{"index": 0, "id": id, "function": {"name": name, "arguments": text}}])
        for id, name, text in heads
    ]
    seen = await streamed(Events(*events, event("tool_calls")), turn())
    assert seen["calls"] == [json.loads(GOOD)] * count


async def test_nesting_beyond_reading_is_an_error_of_the_backend():
    class Deep(Scripted):
        async def complete(self, turn: Turn) -> ChatResponse:
            raise RecursionError

        async def _chunks(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
            raise RecursionError
            yield

    for asking in (streamed, whole):
        with pytest.raises(UpstreamFailed, match="nested too deeply"):
            await asking(Deep(), turn())
        deep = '{"path": "a", "z": ' + "[" * 50_000 + "]" * 50_000 + "}"
        with pytest.raises(UpstreamFailed, match="too deeply"):
            await asking(Scripted(*[("", [deep], "tool_calls")] * 2), turn())
