"""Counts that no backend should tell: the answer goes out, and a row says what can be known."""

from __future__ import annotations

import re

import pytest

from agentspec.gateway.ledger import Ledger
from agentspec.gateway.metrics import Metrics
from agentspec.store.record import OpenRecord, RequestRecord
from tests.gateway.serving import ListJournal

LARGEST = 2**48


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("negative", ("engine", 0, 0)),
        ("absurd", ("engine", LARGEST, LARGEST)),
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
