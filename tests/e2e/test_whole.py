"""From the unchanged ``openai`` SDK through gateway and engine to the SQL row and the page."""

from __future__ import annotations

import json
import re
import shutil
import urllib.request
from pathlib import Path

import jsonschema
import openai
import pytest
from playwright.sync_api import expect, sync_playwright

from agentspec.bench.kill import children, victims

from .conftest import MODEL, Served

pytestmark = pytest.mark.model

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather in a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "minLength": 2},
                "days": {"type": "integer", "minimum": 1, "maximum": 5},
                "unit": {"enum": ["celsius", "fahrenheit"]},
            },
            "required": ["city", "days", "unit"],
            "additionalProperties": False,
        },
    },
}
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


def say(text: str) -> list[dict]:
    return [{"role": "user", "content": text}]


def test_a_streamed_chat_its_usage_its_row_and_its_page(served: Served, headers):
    stream = served.client().chat.completions.create(
        model=MODEL,
        messages=say("Repeat this line three times: the quick brown fox jumps over the lazy dog"),
        temperature=0,
        max_tokens=60,
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=headers("e2e-stream"),
    )
    chunks = list(stream)
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    usage = chunks[-1].usage
    assert "quick brown fox" in text
    details = usage.completion_tokens_details
    assert details.accepted_prediction_tokens > 0
    row = served.row("e2e-stream")
    assert row["status"] == "ok" and row["model"] == MODEL and row["backend"] == "engine"
    assert (row["in_tok"], row["out_tok"]) == (usage.prompt_tokens, usage.completion_tokens)
    assert row["spec_accepted"] == details.accepted_prediction_tokens
    assert row["spec_drafted"] - row["spec_accepted"] == details.rejected_prediction_tokens
    hist = json.loads(row["spec_hist"])
    assert sum(hist) == row["spec_steps"]
    assert sum(j * steps for j, steps in enumerate(hist)) == row["spec_accepted"]
    assert 0 < row["ttft_ms"] <= row["e2e_ms"]
    page = urllib.request.urlopen(f"{served.url}/dashboard/requests/{row['id']}").read().decode()
    assert "e2e-stream" in page


@pytest.mark.parametrize("stream", [False, True])
def test_a_required_tool_call_validates(served: Served, headers, stream):
    session = f"e2e-tool-{stream}"
    client = served.client()
    asked = {
        "model": MODEL,
        "messages": say("How is the weather in Oslo for the next 3 days?"),
        "tools": [WEATHER],
        "tool_choice": "required",
        "temperature": 0,
        "extra_headers": headers(session),
    }
    if stream:
        with client.chat.completions.stream(**asked) as events:
            for _ in events:
                pass
            answer = events.get_final_completion()
    else:
        answer = client.chat.completions.create(**asked)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.tool_calls
    for call in choice.message.tool_calls:
        assert call.function.name == "get_weather" and call.id.startswith("call_")
        jsonschema.validate(json.loads(call.function.arguments), WEATHER["function"]["parameters"])
    row = served.row(session)
    assert row["tool_calls"] == row["tool_calls_valid"] == len(choice.message.tool_calls)
    assert row["forced_tok"] > 0


def test_a_json_schema_answer(served: Served):
    answer = served.client().chat.completions.create(
        model=MODEL,
        messages=say("Ada Lovelace was 36 years old. Give her name and age."),
        response_format={
            "type": "json_schema",
            "json_schema": {"name": "person", "schema": PERSON, "strict": True},
        },
        temperature=0,
    )
    assert answer.choices[0].finish_reason == "stop"
    jsonschema.validate(json.loads(answer.choices[0].message.content), PERSON)


def test_speculation_off_writes_the_same_text(served: Served):
    def text(speculation: str) -> str:
        answer = served.client().chat.completions.create(
            model=MODEL,
            messages=say("Write a Python class Stack with push, pop and peek."),
            temperature=0,
            max_tokens=160,
            extra_body={"agentspec": {"speculation": speculation}},
        )
        report = answer.agentspec
        assert report["exact"] and bool(report["hist"][1:]) == (speculation == "auto")
        return answer.choices[0].message.content

    assert text("auto") == text("off")


def test_refusals_are_the_same_with_stream_on_and_off(served: Served):
    bad = [
        ({"temperature": 9}, "temperature", 400),
        ({"model": "no-such-model"}, "model", 404),
        ({"messages": say("x " * 20000)}, "messages", 400),
        ({"tool_choice": "required"}, "tool_choice", 400),
    ]
    for fields, param, status in bad:
        for stream in (False, True):
            asked = {"model": MODEL, "messages": say("hi"), **fields, "stream": stream}
            with pytest.raises(openai.APIStatusError) as caught:
                served.client().chat.completions.create(**asked)
            assert caught.value.status_code == status
            assert caught.value.body["param"] == param


def test_agents_limits_are_clamped_and_the_row_says_so(served: Served, headers):
    client = served.client()
    client.chat.completions.create(
        model=MODEL,
        messages=say("Say hello."),
        max_tokens=128000,
        temperature=0,
        stop=["."],
        extra_headers=headers("e2e-clamp"),
    )
    row = served.row("e2e-clamp")
    assert row["max_tokens"] == 128000
    assert row["max_tokens_clamped"] == 8192 - row["in_tok"]


def test_a_second_turn_reuses_the_first_ones_pages(served: Served, headers):
    client = served.client()
    messages = say("Name three colours. " + "Think about it well. " * 30)
    first = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=12, temperature=0
    )
    messages += [
        {"role": "assistant", "content": first.choices[0].message.content},
        *say("And three animals."),
    ]
    second = client.chat.completions.create(
        model=MODEL, messages=messages, max_tokens=12, extra_headers=headers("e2e-turn")
    )
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached >= first.usage.prompt_tokens - 16
    assert served.row("e2e-turn")["cached_tok"] == cached


@pytest.mark.browser
def test_the_dashboard_shows_the_request(served: Served, headers):
    served.client().chat.completions.create(
        model=MODEL, messages=say("Hi"), max_tokens=4, extra_headers=headers("e2e-page")
    )
    row = served.row("e2e-page")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"),
            args=["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking"],
        )
        page = browser.new_page(base_url=served.url)
        complaints: list[str] = []
        page.on("console", lambda message: complaints.append(message.text))
        page.goto("/dashboard")
        link = page.locator(f"a[href*='{row['id']}']").first
        expect(link).to_be_visible(timeout=30_000)
        link.click()
        expect(page.locator("body")).to_contain_text("e2e-page", timeout=30_000)
        browser.close()
    assert complaints == []


def test_no_key_or_body_is_in_the_logs_and_the_journal_is_private(served: Served):
    secret = "sk-very-secret-0123456789"
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key=secret, max_retries=0)
    client.chat.completions.create(model=MODEL, messages=say("xyzzy plugh"), max_tokens=3)
    everything = b"".join(
        path.read_bytes() for path in Path(served.folder).rglob("*") if path.is_file()
    )
    assert secret.encode() not in everything
    assert b"xyzzy" not in everything


def test_every_process_is_supervised_and_named(served: Served):
    for kind in ("engine", "gateway", "writer"):
        assert len(victims(served.process.pid, kind)) == 1
    commands = [" ".join(args) for args in children(served.process.pid).values()]
    assert any(re.search(r"db.writer", command) for command in commands)
