"""Counts that no backend should tell: the answer goes out, and a row says what can be known."""

from __future__ import annotations

import re

import msgspec
import pytest

from agentspec.gateway.ledger import Ledger
from agentspec.gateway.metrics import Metrics
from agentspec.gateway.tally import Tally
from agentspec.settings import ModelSettings
from agentspec.store.record import OpenRecord, RequestRecord
from agentspec.wire.chat import (
    AnswerMessage,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Choice,
    ChunkChoice,
    Delta,
    Usage,
)
from tests.gateway.serving import ListJournal

LARGEST = 2**48


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("absurd", ("engine", LARGEST, LARGEST)),
        ("negative", ("none", 0, 0)),
        ("zeros", ("none", 0, 0)),
        ("uncounted", ("none", 0, 0)),
    ],
)
async def test_odd_counts_harm_nothing(gateway, model, expected, stream):
    answer = await gateway.chat(model, stream=stream)
    assert answer.status_code == 200
    row = gateway.journal.row
    assert row.status == "ok"
    assert (row.token_source, row.in_tok, row.out_tok) == expected
    page = (await gateway.http.get("/metrics")).text
    assert re.search(r"^agentspec_requests_in_flight 0.0$", page, re.MULTILINE)


LONG = "a text that takes ten tokens or so"
ASKED = {"messages": [{"role": "user", "content": "x" * 400}]}


def told(
    usage: Usage | None, *, stream: bool, said: str = LONG, **asked: object
) -> tuple[str, int, int]:
    """Of an answer that ended well: who counted it, and what the row holds."""
    tally = Tally(OpenRecord("r", 0), 0.0)
    request = msgspec.convert({"model": "m"} | ASKED | asked, ChatRequest)
    tally.take_request(request, ModelSettings(backends=["up"]))
    if stream:
        tally.take_chunk(ChatChunk("c", 0, "m", [ChunkChoice(0, Delta(content=said))]), 1.0)
        last = ChatChunk("c", 0, "m", [ChunkChoice(0, Delta(), "stop")])
        if usage is not None:
            last.usage = usage
        tally.take_chunk(last, 2.0)
    else:
        choice = Choice(0, AnswerMessage(content=said), "stop")
        tally.take_response(ChatResponse("c", 0, "m", [choice], usage=usage))
    row = tally.finished(3.0)
    return row.token_source, row.in_tok, row.out_tok


@pytest.mark.parametrize("stream", [False, True])
def test_a_usage_of_zeros_tells_nothing(stream):
    """It would make the answer free of cost, of budgets and of limits."""
    assert told(Usage(0, 0, 0), stream=stream) == told(None, stream=stream)


@pytest.mark.parametrize("stream", [False, True])
def test_the_side_that_a_server_does_not_count_is_estimated(stream):
    out_tok = len(LONG) // 4
    assert told(Usage(120, 0, 120), stream=stream) == ("estimated", 120, out_tok)
    source, in_tok, counted = told(Usage(0, 9, 9), stream=stream)
    assert (source, counted) == ("estimated", 9) and 100 <= in_tok <= 120
    assert told(Usage(120, 9, 129), stream=stream) == ("engine", 120, 9)
    # No token was asked for: what an answer then repeats of the prompt is none of its own.
    assert told(Usage(120, 0, 120), stream=stream, max_tokens=0) == ("engine", 120, 0)
    assert told(Usage(120, 0, 120), stream=stream, said="") == ("engine", 120, 0)


def test_an_estimated_prompt_holds_tools_and_earlier_calls():
    """Agents send more of these than of text; who leaves early must not have them for nothing."""
    parameters = {"type": "object", "properties": {"p": {"description": "y" * 4000}}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": parameters}}]
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "z" * 4000}}
    messages = [*ASKED["messages"], {"role": "assistant", "content": None, "tool_calls": [call]}]
    _, alone, _ = told(None, stream=True)
    _, with_tools, _ = told(None, stream=True, tools=tools)
    _, forbidden, _ = told(None, stream=True, tools=tools, tool_choice="none")
    _, with_calls, _ = told(None, stream=True, messages=messages)
    assert with_tools >= alone + 1000 and with_calls >= alone + 1000 and forbidden == alone


def test_a_row_is_journalled_whatever_fails_beside_it():
    """Pricing, booking and counting all raise: the row is there, and nobody hears of it."""

    def fails(_: RequestRecord) -> None:
        raise ValueError("no")

    journal, metrics = ListJournal(), Metrics(frozenset())
    ledger = Ledger(journal, metrics, fails, (fails,))
    ledger.open(OpenRecord("r", 0))
    ledger.close(RequestRecord("r", 0, in_tok=1, cached_tok=2))  # no counter takes -1
    assert [row.id for row in journal.closed] == ["r"]
    assert b"agentspec_requests_in_flight 0.0" in metrics.page()
