"""A template that shows tools itself: found out, given the request's tools, kept from harm."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentspec.engine.tokenizer import Tokenizer
from agentspec.engine.turn import Planner
from agentspec.toolcall.format import load_format
from agentspec.toolcall.native import Native, native_tools, native_turns
from agentspec.wire.chat import ChatRequest, decode_request
from tests.engine.model.tiny_vocabulary import write_gguf

HERMES = load_format("hermes")
HEAD = """{%- if tools -%}
<|im_start|>system
# TOOLS
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<|im_end|>
{% endif -%}
"""
BODY = """{%- for m in messages -%}
<|im_start|>{{ m.role }}
{{ m.content }}{% for c in m.tool_calls or [] -%}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": ARGUMENTS}
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
AS_OBJECT = HEAD + BODY.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
AS_TEXT = HEAD + BODY.replace("ARGUMENTS", "{{ c.function.arguments + '' }}")
TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Looks. Then says <|im_end|> a lot. " * 3,
        "parameters": {
            "type": "object",
            "properties": {
                "<|im_end|>": {"type": "string", "description": "x<"},
                "n": {"type": "integer"},
            },
        },
    },
}


@pytest.fixture
def with_template(tmp_path: Path) -> Callable[[str], Tokenizer]:
    return lambda source: Tokenizer.from_gguf(write_gguf(tmp_path / "v.gguf", template=source))


class NoCompiler:
    def compile(self, spec: Any) -> Any:
        return None


def request(**fields: Any) -> ChatRequest:
    call = {"id": "abc", "type": "function", "function": {"name": "look", "arguments": '{"n": 1}'}}
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Go."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "seen <|im_start|>", "tool_call_id": "abc"},
    ]
    body = {"model": "m", "messages": messages, "tools": [TOOL], **fields}
    return decode_request(json.dumps(body).encode())


def planner(tokenizer: Tokenizer, budget_chars: int = 1 << 40) -> Planner:
    fmt = replace(HERMES, tools_budget_chars=budget_chars)
    return Planner(
        model="m", context_tokens=8192, tokenizer=tokenizer, tool_format=fmt, compiler=NoCompiler()
    )


def prompt(tokenizer: Tokenizer, asked: ChatRequest, **options: Any) -> str:
    (sequence,) = planner(tokenizer, **options).plan(asked, 0.0).sequences
    return tokenizer.decode(sequence.prompt)


@pytest.mark.parametrize(
    ("template", "way"), [(AS_OBJECT, Native("object")), (AS_TEXT, Native("text"))]
)
def test_what_the_template_takes_is_found_out(with_template: Any, template: str, way: Native):
    assert with_template(template).native(HERMES) == way


@pytest.mark.parametrize(
    "template",
    [
        BODY.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}"),
        HEAD + BODY.replace("<tool_call>", "<other>"),
        HEAD + "{{ raise_exception('no tools') }}",
        AS_OBJECT.replace("{{ tool | tojson }}", "{{ tool.function.name }}"),
    ],
    ids=["shows none", "writes calls otherwise", "refuses", "leaves out what they do"],
)
def test_another_template_is_not_used(with_template: Any, template: str):
    assert with_template(template).native(HERMES) is None


@pytest.mark.parametrize("template", [AS_OBJECT, AS_TEXT])
def test_the_prompt_is_the_template_s(with_template: Any, template: str):
    tokenizer = with_template(template)
    text = prompt(tokenizer, request())
    assert text.count("# TOOLS") == 1 and json.dumps(TOOL) in text
    assert '<tool_call>\n{"name": "look", "arguments": {"n": 1}}\n</tool_call>' in text
    assert "<|im_start|>tool\nseen <|im_start|><|im_end|>" in text


def test_only_the_template_places_special_tokens(with_template: Any):
    tokenizer = with_template(AS_OBJECT)
    (sequence,) = planner(tokenizer).plan(request(), 0.0).sequences
    special = [token for token in sequence.prompt if token in tokenizer.special_ids]
    text = tokenizer.decode(sequence.prompt)
    turns = 5  # the tools', four messages
    assert len(special) == 2 * turns + 1
    assert text.count("<|im_end|>") > turns


def test_tools_too_long_for_the_context_are_brief_or_shown_in_our_way(with_template: Any):
    tokenizer = with_template(AS_OBJECT)
    brief = prompt(tokenizer, request(), budget_chars=200)
    assert "# TOOLS" in brief and '"Looks."' in brief and "Then says" not in brief
    ours = prompt(tokenizer, request(), budget_chars=20)
    assert "# TOOLS" not in ours and "look(" in ours
    assert native_tools(request(), 20) is None
    assert native_tools(request(tool_choice="none"), 20) == []


def test_ids_are_of_a_kind_that_templates_take():
    turns = native_turns(request(), Native("text", "named"))
    assert turns[0] == {"role": "system", "content": "Be brief."}
    assert turns[2]["tool_calls"][0]["id"] == turns[3]["tool_call_id"] == "functions.look:0"
    assert turns[3]["name"] == "look"
    plain = native_turns(request(), Native())
    assert plain[2]["tool_calls"][0]["id"] == plain[3]["tool_call_id"] == "call00000"


def test_the_generation_tag_says_nothing_and_json_may_be_asked_for_in_ascii(with_template: Any):
    source = (
        "{% generation %}{{ messages[0].content | tojson(ensure_ascii=True) }}{% endgeneration %}"
    )
    tokenizer = with_template(source)
    assert tokenizer.decode(tokenizer.render([{"role": "user", "content": "é"}])) == '"\\u00e9"'


def test_a_planner_can_be_warmed(with_template: Any):
    for template in (AS_OBJECT, "{{ raise_exception('nothing pleases') }}"):
        planner(with_template(template)).warm()
