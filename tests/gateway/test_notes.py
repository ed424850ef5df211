"""What is kept beside a row: its tool calls, and by the settings what was asked and answered."""

from __future__ import annotations

import json

import pytest

from agentspec.settings import BackendSettings, ModelSettings, Settings, StoreSettings
from agentspec.store.record import CallRecord, CallsRecord, PayloadRecord

TOOLS = [{"type": "function", "function": {"name": name}} for name in ("weather", "now")]


@pytest.fixture
async def keeping(start, up):
    """A gateway that keeps payloads."""
    backends = {"up": BackendSettings(kind="openai", url=up.url, constrained=True)}
    models = {name: ModelSettings(backends=["up"]) for name in ("good", "agent", "dies", "broken")}
    store = StoreSettings(payloads=True)
    async with start(settings=Settings(backends=backends, models=models, store=store)) as gateway:
        yield gateway


@pytest.mark.parametrize("stream", [False, True])
async def test_calls_stand_beside_the_row_and_texts_do_not(gateway, stream):
    await gateway.chat("agent", stream=stream, tools=TOOLS)
    row = gateway.journal.row
    calls = [CallRecord("weather", True), CallRecord("now", row.tool_calls_valid == 2)]
    assert gateway.journal.notes == [CallsRecord(row.id, row.ts_ms, calls)]
    assert sum(call.valid for call in calls) == row.tool_calls_valid


@pytest.mark.parametrize("stream", [False, True])
async def test_payloads_are_what_was_sent_both_ways(keeping, stream):
    answer = await keeping.chat("good", stream=stream, user="somebody")
    asked, said = keeping.journal.notes
    assert isinstance(asked, PayloadRecord) and isinstance(said, PayloadRecord)
    assert (asked.kind, said.kind) == ("request", "response")
    assert asked.id == said.id == keeping.journal.row.id
    assert json.loads(asked.body)["user"] == "somebody"
    assert said.body == answer.text


async def test_payloads_of_what_failed(keeping):
    await keeping.chat("dies", stream=True)
    _, said = keeping.journal.notes
    assert "Grüße" in said.body and "[DONE]" not in said.body
    keeping.journal.notes.clear()
    await keeping.chat("broken")
    asked, said = keeping.journal.notes
    assert json.loads(asked.body)["model"] == "broken" and said.body == ""
