"""Every surface on the real model: folded streams equal whole answers at temperature 0."""

from __future__ import annotations

import json
import re
from typing import Any

import anthropic
import pytest

from .conftest import MODEL, Served

pytestmark = pytest.mark.model

PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 2, "maxLength": 20}},
    "required": ["city"],
    "additionalProperties": False,
}
GRAMMAR = 'start: "*** Delete File: " /[a-z]{1,8}/ ".py" "\\n"'
ASK = "What is the weather in Paris?"


def test_responses(served: Served):
    client = served.client()
    tools: Any = [{"type": "function", "name": "get_weather", "parameters": PARAMETERS}]
    for more in ({}, {"tools": tools, "tool_choice": "required"}):
        asked: Any = {"model": MODEL, "input": ASK, "temperature": 0, "max_output_tokens": 60}
        with client.responses.stream(**asked, **more) as stream:
            events: list[Any] = list(stream)
        assert events[-1].type in ("response.completed", "response.incomplete")
        folded = events[-1].response
        whole = client.responses.create(**asked, **more)
        assert folded.output_text == whole.output_text
        calls = [
            [(i.name, i.arguments) for i in answer.output if i.type == "function_call"]
            for answer in (folded, whole)
        ]
        assert calls[0] == calls[1]
        assert bool(calls[0]) is bool(more)
        assert all(set(json.loads(arguments)) == {"city"} for _, arguments in calls[0])
        assert folded.usage is not None and whole.usage is not None
        assert folded.usage.output_tokens == whole.usage.output_tokens > 0
        assert folded.status == whole.status


def test_a_custom_tool_writes_what_its_grammar_allows(served: Served):
    tool: Any = {
        "type": "custom",
        "name": "patch",
        "description": "Deletes files",
        "format": {"type": "grammar", "syntax": "lark", "definition": GRAMMAR},
    }
    answer = served.client().responses.create(
        model=MODEL,
        input="Delete main.py",
        tools=[tool],
        tool_choice="required",
        temperature=0,
        max_output_tokens=100,
    )
    call = next(item for item in answer.output if item.type == "custom_tool_call")
    assert call.name == "patch"
    assert re.fullmatch(r"\*\*\* Delete File: [a-z]{1,8}\.py\n", call.input)


def test_messages(served: Served):
    tools: Any = [{"name": "get_weather", "input_schema": PARAMETERS}]
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
        for more in ({}, {"tools": tools, "tool_choice": {"type": "any"}}):
            asked: Any = {
                "model": MODEL,
                "max_tokens": 60,
                "messages": [{"role": "user", "content": ASK}],
                "extra_body": {"temperature": 0},
            }
            with client.messages.stream(**asked, **more) as stream:
                folded = stream.get_final_message()
            whole = client.messages.create(**asked, **more)

            def plain(message: Any) -> list[dict[str, Any]]:
                blocks = [block.to_dict() for block in message.content]
                return [{k: b[k] for k in b if k not in ("id", "citations")} for b in blocks]

            assert plain(folded) == plain(whole)
            assert folded.stop_reason == whole.stop_reason
            assert (whole.stop_reason == "tool_use") is bool(more)
            assert folded.usage.output_tokens == whole.usage.output_tokens > 0
        counted = client.messages.count_tokens(
            model=MODEL, messages=[{"role": "user", "content": ASK}]
        )
        plain_usage = client.messages.create(
            model=MODEL, max_tokens=1, messages=[{"role": "user", "content": ASK}]
        ).usage
        read = plain_usage.cache_read_input_tokens or 0
        assert counted.input_tokens == plain_usage.input_tokens + read
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d"):
            client.messages.create(
                model=MODEL, max_tokens=1, messages=[{"role": "user", "content": "word " * 9000}]
            )


def test_completions(served: Served):
    client = served.client()
    asked: Any = {"model": MODEL, "prompt": "1, 2, 3, 4, 5, 6,", "temperature": 0, "max_tokens": 12}
    whole = client.completions.create(**asked)
    chunks = client.completions.create(**asked, stream=True)
    assert "".join(chunk.choices[0].text for chunk in chunks) == whole.choices[0].text
    assert whole.choices[0].text.lstrip().startswith("7")
    with pytest.raises(Exception, match="cannot fill in the middle"):
        client.completions.create(**asked, suffix=" 20")
