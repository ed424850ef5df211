"""Lists of requests by property: only buckets that hold some are read, and none is left out."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping

import pytest
from sqlalchemy import Connection, Engine, event, text

from agentspec.store import newest
from agentspec.store.newest import FEW, spans
from agentspec.store.reader import Reader
from agentspec.store.record import RequestRecord
from agentspec.store.requests import Filters, recent
from agentspec.store.retention import prune
from agentspec.store.rollup_schema import DAY_MS, HOUR_MS, MINUTE_MS
from agentspec.store.sample import sample
from agentspec.store.slices import Slice
from agentspec.store.window import Window
from tests.store.ledger import EPOCH_MS, insert, random_record

DAYS = 6
WINDOWS = [
    Window(EPOCH_MS - DAYS * DAY_MS, EPOCH_MS),
    Window(EPOCH_MS - 3 * DAY_MS - 4321, EPOCH_MS - 2 * HOUR_MS - 17),
    Window(EPOCH_MS - 7 * MINUTE_MS - 1, EPOCH_MS - 3),
    Window(EPOCH_MS, EPOCH_MS + DAY_MS),
]


@pytest.fixture
def records(engine: Engine, url: str) -> list[RequestRecord]:
    rng = random.Random(3)
    found = [random_record(rng, number, DAYS * DAY_MS) for number in range(400)]
    found += [random_record(rng, 400 + number, 10 * MINUTE_MS) for number in range(60)]
    insert(url, found)
    return found


def matching(
    records: list[RequestRecord], window: Window, where: Mapping[str, str]
) -> list[RequestRecord]:
    """All of them, the newest first."""
    found = [
        r
        for r in records
        if window.since_ms <= r.ts_ms < window.until_ms
        and all((getattr(r, name) or "") == value for name, value in where.items())
    ]
    return sorted(found, key=lambda r: (r.ts_ms, r.id), reverse=True)


def wheres(records: list[RequestRecord]) -> list[dict[str, str]]:
    one = records[7]
    return [
        {},
        {"status": "lost"},
        {"model": one.model, "status": "error"},
        {"spec_arm": ""},
        {"key_id": one.key_id},
        {"key_id": one.key_id, "client": one.client, "status": "ok"},
        {"session_id": one.session_id, "status": one.status},
        {"model": "nobody's"},
    ]


def ask(
    connection: Connection, window: Window, where: dict[str, str], limit: int
) -> list[RequestRecord]:
    """Page after page."""
    found: list[RequestRecord] = []
    before = None
    while page := recent(connection, window, limit, where=where, before=before):
        found += page
        before = (page[-1].ts_ms, page[-1].id)
    return found


@pytest.mark.parametrize("minutes", ["kept", "pruned"])
def test_every_request_is_listed_once(engine: Engine, records: list[RequestRecord], minutes: str):
    if minutes == "pruned":
        prune(engine, "minute", EPOCH_MS - DAY_MS)
    with engine.connect() as connection:
        for window, where, limit in itertools.product(WINDOWS, wheres(records), (23, 500)):
            found = ask(connection, window, where, limit)
            assert found == matching(records, window, where), (window, where, limit)


def test_of_a_rare_property_little_is_read(
    engine: Engine, records: list[RequestRecord], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(newest, "CHEAP_ROWS", 0)  # as if there were many rows in each minute
    window = WINDOWS[0]
    lost = matching(records, window, {"status": "lost"})
    assert 0 < len(lost) < 40
    with engine.connect() as connection:
        found = spans(connection, window, {"status": "lost"}, 1000)
        last = spans(connection, window, {"status": "lost"}, 3)
        assert spans(connection, window, {"status": "nothing's"}, 3) == []
    minutes = {ms // MINUTE_MS for s in found for ms in range(s.since_ms, s.until_ms, MINUTE_MS)}
    assert {r.ts_ms // MINUTE_MS for r in lost} == minutes
    assert len(last) <= 4 and sum(s.length_ms for s in last) <= FEW * HOUR_MS
    for row in lost[:3]:
        assert any(s.since_ms <= row.ts_ms < s.until_ms for s in last)


@pytest.mark.parametrize("minutes", ["kept", "pruned"])
def test_those_with_some_of_a_count_are_all_found(
    engine: Engine, records: list[RequestRecord], minutes: str
):
    if minutes == "pruned":
        prune(engine, "minute", EPOCH_MS - DAY_MS)
    wheres = ({}, {"model": records[7].model}, {"session_id": records[7].session_id})
    with engine.connect() as connection:
        for window, where, limit in itertools.product(WINDOWS, wheres, (1, 9, 500)):
            found = sample(connection, Slice(window, where), ["id"], limit, some="spec_steps")
            wanted = [r.id for r in matching(records, window, where) if r.spec_steps]
            assert [id for (id,) in found.rows] == wanted[:limit], (window, where, limit)
            assert found.whole == (len(wanted) <= limit)


def test_where_nobody_speculates_no_row_is_read_for_it(engine: Engine, url: str):
    """Millions of requests to vendors only: an index on time would lead through all of them."""
    plain = [RequestRecord(f"p{n:04}", EPOCH_MS - 700 * n) for n in range(300)]
    rare = RequestRecord("rare", EPOCH_MS - 99_000, backend="own", spec_steps=3)
    insert(url, plain)
    with engine.connect() as connection:
        assert spans(connection, WINDOWS[0], {}, 50, "spec_steps") == []
    insert(url, [rare])
    with engine.connect() as connection:
        (found,) = spans(connection, WINDOWS[0], {}, 50, "spec_steps")
    assert found.length_ms <= HOUR_MS and found.since_ms <= rare.ts_ms < found.until_ms


def test_a_page_of_a_rare_property_reads_no_row_of_others(
    engine: Engine, url: str, records: list[RequestRecord], monkeypatch: pytest.MonkeyPatch
):
    """As if there were too many rows to read them: but for the list, all comes from rollups."""
    monkeypatch.setattr("agentspec.store.slices.ROWS_READ", 10)
    reader = Reader(url)
    asked: list[str] = []
    event.listen(reader._engine, "before_cursor_execute", lambda *a: asked.append(a[2]))
    page = reader.overview(WINDOWS[0], DAY_MS, where={"status": "lost"})
    reader.recent(WINDOWS[0], 5, Filters(status="lost"))
    reader.close()
    assert page.totals.requests == len(matching(records, WINDOWS[0], {"status": "lost"}))
    of_rows = [one for one in asked if "FROM request " in one.replace("\n", " ")]
    assert of_rows and all("LIMIT" in one for one in of_rows)


@pytest.mark.parametrize("empty_url", ["sqlite"], indirect=True)
def test_a_key_is_found_by_its_index(engine: Engine, records: list[RequestRecord]):
    """On SQLite only: PostgreSQL reads so small a table whole."""
    plans: list[str] = []

    @event.listens_for(engine, "before_cursor_execute")
    def explain(connection, cursor, statement, parameters, context, many):
        if statement.startswith("SELECT request."):
            raw = connection.connection.cursor()
            plans.append(str(raw.execute(f"EXPLAIN QUERY PLAN {statement}", parameters).fetchall()))

    with engine.connect() as connection:
        connection.execute(text("SELECT 1"))
        recent(connection, WINDOWS[0], 5, where={"key_id": records[0].key_id})
    assert plans and all("ix_request_key_id" in plan for plan in plans)


def test_a_ledger_of_few_rows_a_minute_is_not_read_a_minute_at_a_time(engine: Engine, url: str):
    """A third of its requests lies in a thousand minutes: that many questions took a second."""
    made = [
        RequestRecord(f"m{n:05}", EPOCH_MS - 20_000 * (n + 1), backend="own" if n % 9 < 3 else "x")
        for n in range(4000)
    ]
    insert(url, made)
    with engine.connect() as connection:
        found = spans(connection, WINDOWS[0], {"backend": "own"}, 1000)
        rows = recent(connection, WINDOWS[0], 1000, where={"backend": "own"})
    assert len(found) <= 3
    assert [row.id for row in rows] == [r.id for r in made if r.backend == "own"][:1000]
