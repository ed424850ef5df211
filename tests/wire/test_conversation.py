"""What chat servers demand of a conversation, and what the other protocols let stand otherwise."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from agentspec.wire import completions, messages, messages_in, responses, responses_in
from agentspec.wire.chat import ChatRequest, Message
from agentspec.wire.errors import InvalidRequest
from agentspec.wire.spelling import respell

IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def from_responses(*items: Any, **fields: Any) -> list[Message]:
    body = {"model": "m", "input": list(items)} | fields
    asked = responses.decode_request(json.dumps(body).encode())
    return responses_in.translate(asked).request.messages


def from_messages(*said: Any, **fields: Any) -> list[Message]:
    body = {"model": "m", "messages": list(said)} | fields
    asked = messages.decode_request(json.dumps(body).encode())
    return messages_in.translate(asked, strip_billing=True).request.messages


def call(id: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": "{}"}


def output(id: str) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": id, "output": f"of {id}"}


def check_results(found: list[Message]) -> None:
    """The rule of chat servers: behind a message with calls come their results, and nothing else
    before they are all there; a result stands nowhere else."""
    open_ids: set[str | None] = set()
    for message in found:
        if message.role == "tool":
            assert message.tool_call_id in open_ids
            open_ids.remove(message.tool_call_id)
            continue
        assert not open_ids
        open_ids = {one.id for one in message.tool_calls or ()}
    assert not open_ids


@pytest.mark.parametrize("role", ["user", "developer", "system"])
def test_a_result_moves_behind_its_call(role):
    between = {"role": role, "content": "and now"}
    found = from_responses(call("a"), between, output("a"), {"role": "user", "content": "go on"})
    check_results(found)
    assert [m.role for m in found] == ["assistant", "tool", role, "user"]
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    said = {"role": "user" if role == "user" else "system", "content": "and now"}
    found = from_messages(
        {"role": "assistant", "content": [use]}, said, {"role": "user", "content": [result]}
    )
    check_results(found)
    assert [m.role for m in found] == ["assistant", "tool", said["role"]]


def test_results_of_several_calls_move_wherever_they_stand():
    between = {"role": "user", "content": "wait"}
    calls, results = [call("a"), call("b")], [output("b"), output("a")]
    for order in set(itertools.permutations(["r", "u", "r"])) | {("u", "u", "r", "u", "r")}:
        left = iter(results)
        found = from_responses(*calls, *(next(left) if one == "r" else between for one in order))
        check_results(found)
        assert [m.text() for m in found[1:3]] == ["of b", "of a"]
        assert [m.role for m in found[3:]] == ["user"] * order.count("u")


def test_an_id_used_again_belongs_to_the_latest_call():
    found = from_responses(call("a"), output("a"), {"role": "user", "content": "again"}, call("a"),
                           {"role": "user", "content": "well?"}, output("a"))  # fmt: skip
    check_results(found)
    assert [m.role for m in found] == ["assistant", "tool", "user", "assistant", "tool", "user"]


def test_one_message_of_the_assistant_stays_one():
    blocks = [
        {"type": "text", "text": "One, "},
        {"type": "text", "text": "two, "},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "text", "text": "three."},
        {"type": "tool_use", "id": "b", "name": "f", "input": {}},
    ]
    results = [{"type": "tool_result", "tool_use_id": i, "content": "1"} for i in "ab"]
    found = from_messages(
        {"role": "assistant", "content": blocks}, {"role": "user", "content": results}
    )
    assert [m.role for m in found] == ["assistant", "tool", "tool"]
    assert found[0].content == "One, two, three."
    assert [c.id for c in found[0].tool_calls or ()] == ["a", "b"]
    two = from_messages(*({"role": "assistant", "content": text} for text in ("One.", "Two.")))
    assert [m.content for m in two] == ["One.", "Two."]


@pytest.mark.parametrize("content", ["", [], [{"type": "text", "text": ""}], [{"type": "new"}]])
def test_a_message_that_says_nothing_is_left_out(content):
    user = {"role": "user", "content": "hi"}
    found = from_messages(user, {"role": "assistant", "content": content}, user)
    assert [m.role for m in found] == ["user", "user"]
    if not content or isinstance(content, str):
        assert len(from_responses(user, {"role": "assistant", "content": content}, user)) == 2


@pytest.mark.parametrize("system", [None, "Be brief."])
def test_a_request_that_says_nothing_is_refused_by_name(system):
    with pytest.raises(InvalidRequest) as caught:
        from_messages({"role": "user", "content": [{"type": "odd", "text": {}}]}, system=system)
    assert caught.value.param == "messages[0].content" and caught.value.param in str(caught.value)


@pytest.mark.parametrize(
    ("part", "param"),
    [
        ({"file_id": "file-1"}, "file_id"),
        ({}, "image_url"),
        ({"image_url": ""}, "image_url"),
        ({"image_url": {"url": 3}}, "image_url"),
    ],
)
def test_a_picture_that_is_not_there_is_refused(part, param):
    with pytest.raises(InvalidRequest) as caught:
        from_responses({"role": "user", "content": [{"type": "input_image"} | part]})
    assert caught.value.param == f"input[0].content[0].{param}"
    with pytest.raises(InvalidRequest):
        from_messages({"role": "user", "content": [IMAGE | {"source": {"type": "base64"}}]})


SEARCH = {
    "type": "search_result",
    "source": "https://example.org/a",
    "title": "A page",
    "content": [{"type": "text", "text": "found"}, {"type": "text", "text": "twice"}],
    "citations": {"enabled": True},
}


def test_search_results_are_read_and_unknown_blocks_left_out():
    unknown = {"type": "container_upload", "text": ["odd"], "source": 3}
    result = {"type": "tool_result", "tool_use_id": "a", "content": [unknown, SEARCH]}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    found = from_messages(
        {"role": "user", "content": [SEARCH, unknown, {"type": "text", "text": "so?"}]},
        {"role": "assistant", "content": [use]},
        {"role": "user", "content": [result]},
    )
    text = "A page\nhttps://example.org/a\nfound\ntwice"
    assert isinstance(found[0].content, list)
    assert [part.text for part in found[0].content] == [text, "so?"]
    assert found[2].content == text


FUNCTION = {"type": "function", "name": "x"}


def namespace(name: str, *tools: str) -> dict[str, Any]:
    return {
        "type": "namespace",
        "name": name,
        "tools": [{"type": "function", "name": tool} for tool in tools],
    }


CLASHES = [
    [{"type": "function", "name": "clock__now"}, namespace("clock", "now")],
    [namespace("a", "b__c"), namespace("a__b", "c")],
    [namespace("a.b", "c"), namespace("a_b", "c"), {"type": "function", "name": "a_b__c"}],
    [namespace("a" * 60, "b__c"), namespace("a" * 60 + "__b", "c")],
    [namespace("a", "_b"), namespace("a_", "b"), {"type": "custom", "name": "a___b"}],
]


@pytest.mark.parametrize("tools", CLASHES)
def test_no_two_tools_have_one_name(tools):
    for order in itertools.permutations(tools):
        body = {"model": "m", "input": "hi", "tools": order}
        asked = responses.decode_request(json.dumps(body).encode())
        done = responses_in.translate(asked)
        flat = [tool.function.name for tool in done.request.tools or ()]
        assert len(set(flat)) == len(tools) and all(len(name) <= 64 for name in flat)
        back = {(done.tools.names.find(n).namespace, done.tools.names.find(n).name) for n in flat}
        expected = {
            (t["name"], t["tools"][0]["name"]) if "tools" in t else (None, t["name"]) for t in tools
        }
        assert back == expected
        for space, name in expected:
            item = {"type": "function_call", "call_id": "1", "name": name, "namespace": space,
                    "arguments": "{}"}  # fmt: skip
            choice = {"type": "function", "name": name, "namespace": space}
            body = {"model": "m", "tools": order, "input": [item, output("1")],
                    "tool_choice": choice}  # fmt: skip
            chosen = responses_in.translate(responses.decode_request(json.dumps(body).encode()))
            (made,) = chosen.request.messages[0].tool_calls or []
            picked: Any = chosen.request.tool_choice
            named = done.tools.names.find(made.function.name or "")
            assert (named.namespace, named.name) == (space, name)
            assert picked["function"]["name"] == made.function.name
        if (None, flat_of_plain := tools[0]["name"]) in expected:
            assert flat_of_plain in flat  # the tool that is called so keeps its name


def test_tools_in_the_input_are_told_apart_before_their_calls_are_read():
    late = {"type": "additional_tools", "tools": [namespace("clock", "now")]}
    used = {"type": "function_call", "call_id": "1", "name": "now", "namespace": "clock"}
    plain = [{"type": "function", "name": "clock__now"}]
    found = from_responses(used, output("1"), late, tools=plain)
    (made,) = found[0].tool_calls or []
    assert made.function.name not in (None, "clock__now")


def refused_references(count: int, distinct: bool) -> InvalidRequest:
    items = [{"type": "item_reference", "id": f"msg_{i if distinct else 0}"} for i in range(count)]
    asked = responses.decode_request(json.dumps({"model": "m", "input": items}).encode())
    with pytest.raises(InvalidRequest) as caught:
        responses_in.references(asked)
    return caught.value


def test_references_are_bounded():
    twice = refused_references(100_000, distinct=False)
    assert (twice.param, twice.code) == ("input[1]", "duplicate_item")
    many = refused_references(responses_in.MAX_REFERENCES + 1, distinct=True)
    assert many.code == "too_many_references"


def spelled(asked: Any, param: str, quoted: bool = True) -> tuple[str | None, str]:
    error = InvalidRequest(f"Invalid value for '{param}': no." if quoted else "No.", param=param)
    respell(error, asked)
    return error.param, error.message


def responses_names(**fields: Any) -> Any:
    body = {"model": "m", "input": "hi"} | fields
    return responses_in.translate(responses.decode_request(json.dumps(body).encode())).spelling()


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("max_completion_tokens", "max_output_tokens"),
        ("response_format.json_schema.schema", "text.format.schema"),
        ("response_format", "text.format"),
        ("tools[0].function.parameters", "tools[1].tools[0].parameters"),
        ("tools[0].function.parameters.properties.x", "tools[1].tools[0].parameters.properties.x"),
        ("tools[1].function.name", "input[0].tools[0].name"),
        ("tools[2].function.parameters", "tools[2].format"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("messages[0].content", "instructions"),
        ("messages[1].content[1]", "input[2].content[1]"),
        ("messages[2].tool_calls[0].function.arguments", "input[3]"),
        ("messages[3].content", "input[4].output"),
        ("messages", "input"),
        ("temperature", "temperature"),
    ],
)
def test_fields_of_responses_are_named_as_they_were_sent(param, expected):
    parts = [{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": "data:x"}]
    late = {"type": "additional_tools", "tools": [{"type": "function", "name": "g"}]}
    items = [late, {"type": "web_search_call"}, {"role": "user", "content": parts}, call("a")]
    order = [{"type": "web_search"}, namespace("n", "t"), {"type": "custom", "name": "c"}]
    names = responses_names(instructions="Be brief.", input=[*items, output("a")], tools=order)
    # Tools in the input come first.
    if param.startswith("tools[0]") or param.startswith("tools[1]"):
        swapped = {"0": "1", "1": "0"}
        param = f"tools[{swapped[param[6]]}{param[7:]}"
    assert spelled(names, param) == (expected, f"Invalid value for '{expected}': no.")


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("stop", "stop_sequences"),
        ("max_tokens", "max_tokens"),
        ("tools[0].function.parameters.x", "tools[1].input_schema.x"),
        ("tool_choice.function.name", "tool_choice.name"),
        ("response_format.json_schema.schema", "output_config.format.schema"),
        ("messages[0].content", "system"),
        ("messages[1].content[1]", "messages[0].content[1]"),
        ("messages[2].tool_calls[0].function.arguments", "messages[1]"),
        ("messages[3].content", "messages[2].content[1].content"),
        ("messages[4].content[0]", "messages[2].content"),
    ],
)
def test_fields_of_messages_are_named_as_they_were_sent(param, expected):
    text = {"type": "text", "text": "see"}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "1"}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    body = {
        "model": "m",
        "system": "Be brief.",
        "tools": [{"type": "web_search_20250305"}, {"name": "f", "input_schema": {}}],
        "messages": [
            {"role": "user", "content": [text, IMAGE]},
            {"role": "assistant", "content": [use]},
            {"role": "user", "content": [text, result]},
        ],
    }
    asked = messages.decode_request(json.dumps(body).encode())
    done = messages_in.translate(asked, strip_billing=True)
    assert spelled(done.spelling("output_config.format.schema"), param)[0] == expected


def test_fields_of_completions_are_named_as_they_were_sent():
    for param, expected in (
        ("top_logprobs", "logprobs"),
        ("messages", "prompt"),
        ("messages[0].content", "prompt"),
        ("agentspec.suffix", "suffix"),
        ("temperature", "temperature"),
    ):
        assert spelled(completions.SPELLING, param)[0] == expected


def test_an_empty_suffix_is_none_and_echoed_logprobs_are_refused():
    asked = completions.decode_request(b'{"model": "m", "prompt": "x", "suffix": ""}')
    made: ChatRequest = completions.translate(asked)
    assert made.agentspec is not None and made.agentspec.suffix is None
    for logprobs in (0, 3):
        body = {"model": "m", "prompt": "x", "echo": True, "logprobs": logprobs}
        with pytest.raises(InvalidRequest) as caught:
            completions.decode_request(json.dumps(body).encode())
        assert caught.value.param == "echo"
