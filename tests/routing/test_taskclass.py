"""What kind of work requests are, in the words that clients use."""

from __future__ import annotations

import pytest

from agentspec.routing.taskclass import KINDS, class_of, kind_of
from agentspec.wire.chat import ChatRequest, decode_request, encode

TOOLS = [{"type": "function", "function": {"name": n, "parameters": {}}} for n in ("read", "edit")]


def request(*messages: tuple[str, str], **fields: object) -> ChatRequest:
    said = [{"role": role, "content": text} for role, text in messages or [("user", "hi")]]
    return decode_request(encode({"model": "m", "messages": said} | fields))


PLAN = "<system-reminder>Plan mode is active. You must not make any edits.</system-reminder>"
SCHEMA = {"type": "json_schema", "json_schema": {"name": "r", "schema": {"type": "object"}}}


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (request(), "chat"),
        (request(tools=TOOLS), "tool"),
        (request(tools=TOOLS, tool_choice="none"), "chat"),
        (request(tools=[]), "chat"),
        (request(("user", PLAN), tools=TOOLS), "plan"),
        # What was said turns ago is no plan any more.
        (request(("user", PLAN), ("assistant", "ok"), ("user", "do it"), tools=TOOLS), "tool"),
        (request(response_format={"type": "json_object"}), "json"),
        (request(response_format=SCHEMA), "json"),
        (request(response_format={"type": "text"}), "chat"),
        (request(("system", "use SEARCH/REPLACE blocks"), ("user", "x")), "edit"),
        (request(("system", "You are a title generator."), ("user", "x")), "title"),
        (request(("user", "Please write a 5-10 word title for this conversation")), "title"),
        (request(("system", "Write a concise commit message."), ("user", "diff")), "title"),
        (request(("user", "<|fim_prefix|>def f(<|fim_suffix|>):<|fim_middle|>")), "fim"),
        (request(agentspec={"suffix": "x", "raw": True}), "fim"),
    ],
)
def test_kinds(asked, kind):
    assert kind_of(asked) == kind and kind in KINDS


def test_the_class_tells_clients_and_tools_apart():
    one = class_of(request(tools=TOOLS), "tool", "codex")
    assert one == class_of(request(tools=TOOLS[::-1]), "tool", "codex")  # their order is no matter
    assert one.schema and one != class_of(request(tools=TOOLS[:1]), "tool", "codex")
    assert one.chain() == ((), ("tool",), ("tool", "codex"), ("tool", "codex", one.schema))
    assert class_of(request(), "chat", "").chain() == ((), ("chat",), ("chat", ""))
    assert class_of(request(response_format=SCHEMA), "json", "").schema
