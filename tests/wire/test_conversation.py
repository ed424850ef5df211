"""What chat servers demand of a conversation, and what the other protocols let stand otherwise."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from agentspec.toolcall.check import ValueChecker
from agentspec.wire import completions, messages, messages_in, responses, responses_in
from agentspec.wire.chat import ChatRequest, Message
from agentspec.wire.errors import InvalidRequest, UpstreamFailed
from agentspec.wire.pieces import Call
from agentspec.wire.responses_out import ResponsesWriter, Shown
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


SHELL = [
    {"type": "local_shell_call", "id": "i", "call_id": "l", "status": "completed",
     "action": {"type": "exec", "command": ["ls"], "env": {}}},
    {"type": "local_shell_call_output", "id": "l", "output": "LS"},
    {"type": "shell_call", "call_id": "m", "action": {"commands": ["pwd"], "timeout_ms": None}},
    {"type": "shell_call_output", "call_id": "m", "output": [
        {"stdout": "PWD", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}},
        {"stdout": "", "stderr": "bad", "outcome": {"type": "exit", "exit_code": 2}}]},
    {"type": "apply_patch_call", "call_id": "p",
     "operation": {"type": "delete_file", "path": "x"}},
    {"type": "apply_patch_call_output", "call_id": "p", "status": "failed"},
    {"type": "mcp_call", "id": "c", "name": "n", "server_label": "s", "arguments": "{\"a\": 1}",
     "output": "MCP"},
    {"type": "tool_search_call", "call_id": "t", "execution": "client",
     "arguments": {"query": "q"}},
    {"type": "tool_search_call", "id": "ts", "execution": "server", "arguments": {}},
    {"type": "tool_search_output", "call_id": "t", "execution": "client",
     "tools": [{"type": "function", "name": "found"}]},
]  # fmt: skip


def test_items_of_tools_known_by_kind_become_calls_and_results():
    found = from_responses({"role": "user", "content": "x"}, *SHELL)
    check_results(found)
    calls = [c.function for m in found for c in m.tool_calls or ()]
    assert [(c.name, json.loads(c.arguments or "")) for c in calls] == [
        ("local_shell", {"command": ["ls"]}),
        ("shell", {"commands": ["pwd"]}),
        ("apply_patch", {"type": "delete_file", "path": "x"}),
        ("n", {"a": 1}),
        ("tool_search", {"query": "q"}),
    ]
    told = [m.content for m in found if m.role == "tool"]
    outcome = '{"type":"exit","exit_code":2}'
    assert told == ["LS", f"PWD\nbad\n{outcome}", "failed", "MCP", "Tools found: found"]


def test_tools_that_a_search_found_are_offered():
    body = {"model": "m", "input": SHELL, "tool_choice": {"type": "function", "name": "found"}}
    asked = responses.decode_request(json.dumps(body).encode())
    request = responses_in.translate(asked).request
    assert [tool.function.name for tool in request.tools or ()] == ["found"]


def test_an_item_that_has_an_id_alone_is_a_reference():
    kept = json.dumps({"type": "message", "role": "user", "content": "KEPT"}).encode()
    body = {"model": "m", "input": [{"id": "msg_1"}, {"id": "x", "role": "user", "content": "y"}]}
    asked = responses.decode_request(json.dumps(body).encode())
    assert responses_in.references(asked) == {"msg_1": "input[0]"}
    request = responses_in.translate(asked, item={"msg_1": kept}.get).request
    assert [m.content for m in request.messages] == ["KEPT", "y"]


def test_what_the_vendors_servers_ran_becomes_calls_and_results():
    found = from_messages(
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": [
            {"type": "text", "text": "A"},
            {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"query": "q"}},
            {"type": "web_search_tool_result", "tool_use_id": "s", "content": [
                {"type": "web_search_result", "title": "T", "url": "U", "encrypted_content": "E"}]},
            {"type": "text", "text": "B"},
            {"type": "mcp_tool_use", "id": "m", "name": "n", "server_name": "z", "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m", "is_error": True,
             "content": [{"type": "text", "text": "MCP"}]},
            {"type": "server_tool_use", "id": "open", "name": "web_search", "input": {}},
            {"type": "tool_use", "id": "f", "name": "f", "input": {}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "f", "content": "R"}]},
    )  # fmt: skip
    check_results(found)
    said = [(m.role, m.content, [c.function.name for c in m.tool_calls or ()]) for m in found]
    assert said == [
        ("user", "x", []),
        ("assistant", "A", ["web_search"]),
        ("tool", '{"title":"T","url":"U"}', []),
        ("assistant", "B", ["n"]),
        ("tool", "Error: MCP", []),
        ("assistant", None, ["f"]),
        ("tool", "R", []),
    ]


@pytest.mark.parametrize(
    ("name", "given", "item"),
    [
        ("local_shell", {"command": ["ls"]},
         {"type": "local_shell_call", "action": {"type": "exec", "env": {}, "command": ["ls"]}}),
        ("shell", {"commands": ["ls"], "timeout_ms": 5},
         {"type": "shell_call",
          "action": {"commands": ["ls"], "timeout_ms": 5, "max_output_length": None}}),
        ("apply_patch", {"type": "create_file", "path": "a", "diff": "+a"},
         {"type": "apply_patch_call",
          "operation": {"type": "create_file", "path": "a", "diff": "+a"}}),
        ("apply_patch", {"type": "delete_file", "path": "a", "diff": ""},
         {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}}),
        ("tool_search", {"query": "q"},
         {"type": "tool_search_call", "execution": "client", "arguments": {"query": "q"}}),
    ],
)  # fmt: skip
def test_a_call_of_a_tool_known_by_kind_is_given_back_as_its_item(name, given, item):
    body = {"model": "m", "input": "x", "tools": [{"type": name, "execution": "client"}]}
    done = responses_in.translate(responses.decode_request(json.dumps(body).encode()))
    (offered,) = done.request.tools or ()
    assert ValueChecker(offered.function.parameters or {}).check(json.dumps(given)) is None
    writer = ResponsesWriter("k", "m", 9, Shown(tools=done.tools))
    events = writer.take([Call("call_1", name, json.dumps(given))])
    assert events.count(b"event: response.output_item.added") == 1
    (made,) = writer.items
    assert made["call_id"] == "call_1" and made["status"] == "completed"
    assert {key: made[key] for key in item} == item
    (again,) = from_responses(made)
    (read,) = again.tool_calls or ()
    assert read.function.name == name and read.id == "call_1"
    known = {key: value for key, value in given.items() if value != ""}
    assert json.loads(read.function.arguments or "") == known
    if name != "tool_search":
        with pytest.raises(UpstreamFailed, match="without what it needs"):
            writer.take([Call("call_2", name, "{}")])
