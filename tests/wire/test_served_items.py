"""Calls and results that are told in items of their own: tools known by kind, and what a vendor's
servers ran."""

from __future__ import annotations

import json

import msgspec
import pytest

from agentspec.toolcall.check import ValueChecker
from agentspec.wire import completions, responses, responses_in
from agentspec.wire.errors import InvalidRequest, UpstreamFailed
from agentspec.wire.pieces import Call
from agentspec.wire.responses_out import ResponsesWriter, Shown
from tests.wire.test_conversation import check_results, from_messages, from_responses

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


def test_what_failed_is_told_and_found_tools_are_told_as_they_are_called():
    inner = [{"type": "function", "name": "now"}]
    found = from_responses(
        {"type": "apply_patch_call", "call_id": "p", "operation": {"type": "delete_file"}},
        {"type": "apply_patch_call_output", "call_id": "p", "status": "failed", "output": "no x"},
        {"type": "tool_search_call", "call_id": "t", "execution": "client", "arguments": {}},
        {"type": "tool_search_output", "call_id": "t", "execution": "client",
         "tools": [{"type": "namespace", "name": "clock", "tools": inner}]},
    )  # fmt: skip
    told = [m.content for m in found if m.role == "tool"]
    assert told == ["failed: no x", "Tools found: clock__now"]


LOCAL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_1",
         "action": {"type": "exec", "command": ["ls"], "env": {}}}  # fmt: skip


@pytest.mark.parametrize("named", [{"id": "lsh_1"}, {"id": "o", "call_id": "call_1"}])
def test_a_result_finds_its_call_by_both_of_its_ids(named):
    output = {"type": "local_shell_call_output", "output": "LS", **named}
    check_results(from_responses(LOCAL, output))
    earlier = responses_in.append_items(
        responses_in.Earlier(), [json.dumps(LOCAL).encode()], responses_in.ToolSet()
    )
    earlier = msgspec.json.decode(msgspec.json.encode(earlier), type=responses_in.Earlier)
    body = {"model": "m", "input": [output], "previous_response_id": "resp_1"}
    asked = responses.decode_request(json.dumps(body).encode())
    done = responses_in.translate(asked, earlier=earlier)
    check_results(done.request.messages)
    again = responses_in.append_items(done.earlier, [], done.tools)
    assert again.call_ids == {"lsh_1": "call_1"}


def test_what_openais_servers_ran_and_a_computer_showed_is_told():
    found = from_responses(
        {"role": "user", "content": "x"},
        {"type": "computer_call", "id": "cu_1", "call_id": "c", "status": "completed",
         "action": {"type": "click", "x": 1, "y": 2}},
        {"type": "computer_call_output", "call_id": "c",
         "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA=="}},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "container_id": "z",
         "outputs": [{"type": "logs", "logs": "2"}]},
        {"type": "file_search_call", "id": "fs_1", "queries": ["q"],
         "results": [{"file_id": "f", "filename": "a.md", "text": "T"}]},
        {"type": "file_search_call", "id": "fs_2", "queries": ["q"], "results": None},
    )  # fmt: skip
    check_results(found)
    calls = [(c.function.name, c.function.arguments) for m in found for c in m.tool_calls or ()]
    assert calls == [
        ("computer", '{"type":"click","x":1,"y":2}'),
        ("code_interpreter", '{"code":"1+1"}'),
        ("file_search", '{"queries":["q"]}'),
    ]
    assert [m.content for m in found if m.role == "tool"] == ["The screen:", "2", "a.md\nT"]
    (shown,) = [m.content for m in found if m.role == "user" and m.content != "x"]
    assert isinstance(shown, list) and shown[0].image_url["url"].endswith("AA==")


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
        ("apply_patch", {"type": "delete_file", "path": "a"},
         {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}}),
        ("apply_patch", {"type": "delete_file", "path": "b", "diff": None},
         {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "b"}}),
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
    known = {key: value for key, value in given.items() if value not in ("", None)}
    assert json.loads(read.function.arguments or "") == known
    if name != "tool_search":
        with pytest.raises(UpstreamFailed, match="without what it needs"):
            writer.take([Call("call_2", name, "{}")])
    if name == "apply_patch":
        with pytest.raises(UpstreamFailed, match="without what it needs"):
            writer.take([Call("call_3", name, '{"type": "update_file", "path": "a"}')])


def test_how_closely_a_picture_is_to_be_looked_at_is_kept():
    part = {"type": "input_image", "image_url": "https://x/a.png", "detail": "low"}
    (message,) = from_responses({"role": "user", "content": [part]})
    assert isinstance(message.content, list)
    assert message.content[0].image_url == {"url": "https://x/a.png", "detail": "low"}


def test_an_empty_prompt_is_refused_by_its_own_name():
    for prompt in ("", [""]):
        body = json.dumps({"model": "m", "prompt": prompt}).encode()
        with pytest.raises(InvalidRequest, match="must not be empty") as refused:
            completions.decode_request(body)
        assert refused.value.param == "prompt"
