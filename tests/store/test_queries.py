"""Each question's answer against the same sum written in plain Python over the same rows."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agentspec.store import migrate
from agentspec.store.errors import SchemaMismatch
from agentspec.store.latency import EDGES_MS
from agentspec.store.reader import LedgerUnavailable, Reader
from agentspec.store.record import RequestRecord
from agentspec.store.requests import Filters
from agentspec.store.window import Window
from tests.store.ledger import EPOCH_MS, insert, random_record

HOUR_MS = 3_600_000
WINDOWS = [
    Window(EPOCH_MS - 24 * HOUR_MS, EPOCH_MS),
    Window(EPOCH_MS - HOUR_MS - 17, EPOCH_MS - 5),
    Window(EPOCH_MS, EPOCH_MS + HOUR_MS),  # nothing in it
]


@pytest.fixture(scope="module")
def records() -> list[RequestRecord]:
    rng = random.Random(20)
    return [random_record(rng, number) for number in range(600)]


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def reader(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    records: list[RequestRecord],
) -> Iterator[Reader]:
    if request.param == "postgresql":
        make: Callable[[], str] = request.getfixturevalue("new_postgres")
        url = make()
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('ledger') / 'agentspec.db'}"
    migrate.upgrade(url)
    insert(url, records)
    reader = Reader(url)
    yield reader
    reader.close()


def within(records: list[RequestRecord], window: Window) -> list[RequestRecord]:
    return [r for r in records if window.since_ms <= r.ts_ms < window.until_ms]


@pytest.mark.parametrize("window", WINDOWS)
def test_totals(reader: Reader, records: list[RequestRecord], window: Window):
    rows = within(records, window)
    found = reader.overview(window, HOUR_MS).totals
    assert found.requests == len(rows)
    states = Counter(r.status for r in rows)
    assert (found.errors, found.cancelled, found.lost) == tuple(
        states[s] for s in ("error", "cancelled", "lost")
    )
    for name in ("in_tok", "cached_tok", "out_tok", "spec_drafted", "cost_nusd", "cost_out_nusd"):
        assert getattr(found, name) == sum(getattr(r, name) for r in rows), name
    assert found.sessions == len({r.session_id for r in rows})
    decoded = [r for r in rows if r.status == "ok" and r.ttft_ms is not None and r.out_tok > 1]
    if decoded:
        seconds = sum((r.e2e_ms or 0) - (r.ttft_ms or 0) for r in decoded) / 1000
        rate = sum(r.out_tok - 1 for r in decoded) / seconds
        assert found.decode_tok_s == pytest.approx(rate)
    else:
        assert found.decode_tok_s is None


def test_totals_of_nothing_are_zero_and_rates_unknown(reader: Reader):
    found = reader.overview(WINDOWS[2], HOUR_MS)
    assert found.totals.requests == found.totals.cost_nusd == 0
    assert found.totals.failed_share is found.totals.acceptance_rate is None
    assert found.acceptance.mean_length is None and found.acceptance.by_position == []
    assert found.ttft.percentile_ms == {} and found.recent == found.places == []


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("bucket_ms", [HOUR_MS, 7 * 60_000])
def test_series(reader: Reader, records: list[RequestRecord], window: Window, bucket_ms: int):
    rows = within(records, window)
    buckets = reader.overview(window, bucket_ms).series
    starts = [bucket.start_ms for bucket in buckets]
    assert starts[0] <= window.since_ms < starts[0] + bucket_ms
    assert starts[-1] < window.until_ms <= starts[-1] + bucket_ms
    assert [b - a for a, b in zip(starts, starts[1:], strict=False)] == [bucket_ms] * (
        len(starts) - 1
    )
    for bucket in buckets:
        mine = [r for r in rows if 0 <= r.ts_ms - bucket.start_ms < bucket_ms]
        assert bucket.requests == len(mine)
        assert bucket.failed == sum(r.status in ("error", "lost") for r in mine)
        assert bucket.fresh_tok == sum(r.in_tok - r.cached_tok for r in mine)
        assert bucket.out_tok == sum(r.out_tok for r in mine)
        assert bucket.cost_nusd == sum(r.cost_nusd for r in mine)


@pytest.mark.parametrize("window", WINDOWS[:2])
def test_acceptance(reader: Reader, records: list[RequestRecord], window: Window):
    """Against a replay of every single verification step."""
    steps = [
        j for r in within(records, window) for j, n in enumerate(r.spec_hist) for _ in range(n)
    ]
    found = reader.overview(window, HOUR_MS).acceptance
    assert found.steps == len(steps)
    assert found.mean_length == pytest.approx(1 + sum(steps) / len(steps))
    expected = [sum(j >= i for j in steps) / len(steps) for i in range(1, max(steps) + 1)]
    assert found.by_position[: len(expected)] == pytest.approx(expected)
    assert not any(found.by_position[len(expected) :])


@pytest.mark.parametrize("window", WINDOWS[:2])
@pytest.mark.parametrize("column", ["ttft_ms", "e2e_ms"])
def test_latency(reader: Reader, records: list[RequestRecord], window: Window, column: str):
    rows = [r for r in within(records, window) if r.status == "ok"]
    times = sorted(t for r in rows if (t := getattr(r, column)) is not None)
    overview = reader.overview(window, HOUR_MS)
    found = overview.ttft if column == "ttft_ms" else overview.e2e
    assert found.count == len(times)
    for percent, value in found.percentile_ms.items():
        assert value in times
        assert sum(t <= value for t in times) >= percent / 100 * len(times)
        assert sum(t < value for t in times) < percent / 100 * len(times)
    assert set(found.percentile_ms) == {50, 90, 95, 99}
    limits = [-math.inf, *EDGES_MS, math.inf]
    pairs = zip(limits, limits[1:], strict=False)
    assert found.bins == tuple(sum(low <= t < high for t in times) for low, high in pairs)


@pytest.mark.parametrize("window", WINDOWS)
def test_breakdown(reader: Reader, records: list[RequestRecord], window: Window):
    rows = within(records, window)
    found = reader.overview(window, HOUR_MS).places
    count = Counter((r.model, r.backend) for r in rows)
    assert {(p.model, p.backend): p.requests for p in found} == count
    assert [p.requests for p in found] == sorted(count.values(), reverse=True)
    for place in found:
        mine = [r for r in rows if (r.model, r.backend) == (place.model, place.backend)]
        assert place.cost_nusd == sum(r.cost_nusd for r in mine)
        steps = sum(sum(r.spec_hist) for r in mine)
        accepted = sum(j * n for r in mine for j, n in enumerate(r.spec_hist))
        assert place.accepted_length == pytest.approx(1 + accepted / steps)


@pytest.mark.parametrize(
    "filters", [Filters(), Filters(session_id="s1"), Filters(model="gpt-9", status="lost")]
)
def test_recent_pages_through_everything_once(
    reader: Reader, records: list[RequestRecord], filters: Filters
):
    def wanted(record: RequestRecord) -> bool:
        names = ("session_id", "model", "backend", "status")
        return all(getattr(filters, n) in ("", getattr(record, n)) for n in names)

    window, before, found = WINDOWS[0], None, []
    while page := reader.recent(window, 37, filters, before):
        found += page
        before = (page[-1].ts_ms, page[-1].id)
    newest_first = sorted(records, key=lambda r: (r.ts_ms, r.id), reverse=True)
    assert found == [r for r in newest_first if wanted(r)]
    assert found[:50] == reader.overview(window, HOUR_MS).recent or filters != Filters()


def test_recent_tells_apart_requests_of_one_millisecond(empty_url: str):
    migrate.upgrade(empty_url)
    insert(empty_url, [RequestRecord(id=f"{n:03}", ts_ms=EPOCH_MS - 1) for n in range(10)])
    reader = Reader(empty_url)
    first = reader.recent(WINDOWS[0], 4, Filters())
    second = reader.recent(WINDOWS[0], 40, Filters(), (first[-1].ts_ms, first[-1].id))
    assert [r.id for r in first + second] == [f"{n:03}" for n in reversed(range(10))]
    reader.close()


def test_one_request_comes_back_as_it_was_journalled(reader: Reader, records: list[RequestRecord]):
    assert reader.request(records[7].id) == records[7]
    assert reader.request("no such id") is None


def test_a_database_that_is_not_there_or_not_ours(tmp_path: Path):
    reader = Reader(f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(LedgerUnavailable, match="unable to open"):
        reader.request("a")
    (tmp_path / "none.db").touch()
    with pytest.raises(SchemaMismatch, match="agentspec db upgrade"):
        reader.request("a")
    migrate.upgrade(f"sqlite:///{tmp_path}/none.db")
    assert reader.request("a") is None  # no restart needed
    reader.close()


def test_a_nul_in_a_question_finds_nothing(reader: Reader):
    """PostgreSQL has no place for one, not even to compare with."""
    window = Window(0, 2 * EPOCH_MS)
    for name in ("session_id", "model", "backend", "status"):
        assert reader.recent(window, 5, Filters(**{name: "s\0"})) == []
    assert reader.recent(window, 5, Filters(), (1, "\0")) == []
    assert reader.request("a\0b") is None
    assert reader.overview(window, HOUR_MS, where={"model": "gpt\0"}).totals.requests == 0
