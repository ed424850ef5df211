"""The rollups against plain sums over the same rows, however and in whatever order they came."""

from __future__ import annotations

import contextlib
import itertools
import math
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest
from sqlalchemy import Engine, select

from agentspec.store import migrate, slices
from agentspec.store.database import connect
from agentspec.store.histogram import bin_of, middle_ms, pack, percentiles, unpack
from agentspec.store.journal import Journal
from agentspec.store.parts import parts
from agentspec.store.reader import Overview, Reader
from agentspec.store.rebuild import rebuild
from agentspec.store.record import RequestRecord
from agentspec.store.rollup_schema import (
    DAY_MS,
    HOUR_MS,
    KEY,
    PLACE,
    SUMS,
    hist,
    rollup,
    rollup_session,
)
from agentspec.store.rows import to_row, write
from agentspec.store.schema import request
from agentspec.store.slices import Slice, counts, sums
from agentspec.store.window import Window
from agentspec.store.writer import Writer
from tests.store.ledger import EPOCH_MS, random_record

SPAN_MS = 3 * DAY_MS
TABLES = (*rollup.values(), *hist.values(), rollup_session)


def some_records(count: int, seed: int = 0) -> list[RequestRecord]:
    rng = random.Random(seed)
    records = [random_record(rng, number, SPAN_MS) for number in range(count)]
    for record in records:
        record.key_id, record.client = rng.choice(["", "k1", "k2"]), rng.choice(["codex", "cline"])
        record.workload = rng.choice(["chat", "edit"])
        record.spec_arm = rng.choice([None, "on", "off"])
        record.tpot_ms = rng.choice([None, rng.random() * 50])
        record.queue_ms = rng.choice([None, 0.0, rng.random()])
    return records


def put(engine: Engine, records: list[RequestRecord], size: int = 97) -> None:
    """In batches, a transaction each."""
    for at in range(0, len(records), size):
        with engine.begin() as connection:
            write(connection, [to_row(record) for record in records[at : at + size]])


def cells(engine: Engine) -> dict[str, set[tuple[Any, ...]]]:
    with engine.connect() as connection:
        return {t.name: {tuple(r) for r in connection.execute(select(t))} for t in TABLES}


def names_free(found: dict[str, set[tuple[Any, ...]]]) -> dict[str, set[tuple[Any, ...]]]:
    """Without a session's client and model, which are those of any of its requests."""
    return found | {"rollup_session": {(*r[:4], *r[6:]) for r in found["rollup_session"]}}


WINDOWS = [
    Window(EPOCH_MS - SPAN_MS, EPOCH_MS),
    Window(EPOCH_MS - 2 * DAY_MS - 12_345_678, EPOCH_MS - 7_654_321),
    Window(EPOCH_MS - 90_000, EPOCH_MS - 5),
    Window(EPOCH_MS - HOUR_MS - 1, EPOCH_MS - HOUR_MS),
]


@pytest.mark.parametrize("cube", [PLACE, KEY])
@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("floors", [{}, {"minute": EPOCH_MS - DAY_MS, "day": EPOCH_MS - DAY_MS}])
def test_parts_cover_the_window_once(window: Window, cube: int, floors: dict[str, int]):
    found = parts(window, cube, floors)
    assert found[0].window.since_ms == window.since_ms
    assert found[-1].window.until_ms == window.until_ms
    for one, next_ in zip(found, found[1:], strict=False):
        assert one.window.until_ms == next_.window.since_ms
    for part in found:
        size = {"day": DAY_MS, "hour": HOUR_MS, "minute": 60_000, None: 1}[part.level]
        assert part.window.since_ms % size == part.window.until_ms % size == 0
        assert part.level is None or part.window.since_ms >= floors.get(part.level, 0)
        if part.level is None and not floors:
            smallest = 60_000 if cube == PLACE else HOUR_MS
            assert part.window.until_ms - part.window.since_ms < 2 * smallest


WHERES = [{}, {"workload": "edit", "spec_arm": ""}, {"key_id": "k1"}, {"client": "cline"}]


def test_a_slice_is_the_sum_of_its_rows(engine: Engine):
    records = some_records(400)
    put(engine, records, size=173)
    for window, where in itertools.product(WINDOWS, WHERES):
        rows = [
            r
            for r in records
            if window.since_ms <= r.ts_ms < window.until_ms
            and all((getattr(r, name) or "") == value for name, value in where.items())
        ]
        check_slice(engine, Slice(window, where), rows)


def check_slice(engine: Engine, slice: Slice, rows: list[RequestRecord]) -> None:
    with engine.connect() as connection:
        found = sums(connection, slice, SUMS)[()]
        times = {m: counts(connection, slice, m) for m in ("ttft", "tpot", "e2e", "queue")}
        accepted = counts(connection, slice, "accepted")
    for name in SUMS:
        assert found[name] == sum(truth(r, name) for r in rows), name
    for metric, counted in times.items():
        values = [v for r in rows if (v := getattr(r, f"{metric}_ms")) is not None]
        assert counted == Counter(map(bin_of, values)), metric
    assert accepted == Counter(j for r in rows for j, n in enumerate(r.spec_hist) for _ in range(n))


def truth(record: RequestRecord, name: str) -> int:
    timed = None not in (record.ttft_ms, record.tpot_ms)
    ends = record.status == "ok" and timed and record.out_tok > 1
    own = {
        "requests": 1,
        "unpriced": int(record.cost_nusd is None),
        "decode_tok": record.out_tok - 1 if ends else 0,
        "decode_us": int(((record.e2e_ms or 0) - (record.ttft_ms or 0)) * 1000) if ends else 0,
        "e2e_us": int((record.e2e_ms or 0) * 1000),
    }
    return own[name] if name in own else getattr(record, name) or 0


def test_any_order_any_batches_and_again_gives_the_same_cells(
    new_engine: Callable[[], Engine],
):
    records = some_records(400)
    engines = [new_engine() for _ in range(3)]
    put(engines[0], records)
    put(engines[1], sorted(records, key=lambda r: r.id, reverse=True), size=1000)
    put(engines[1], records)  # all of it again: read twice, counted once
    put(engines[2], records, size=31)
    with engines[2].begin() as connection:
        assert rebuild(connection) == len(records)
    one, *others = [names_free(cells(engine)) for engine in engines]
    assert others == [one, one]
    assert all(one.values())


@pytest.fixture
def new_engine(tmp_path: Path, url: str) -> Iterator[Callable[[], Engine]]:
    """Engines on ledgers of their own: the first on ``url``, then SQLite files."""
    urls = [url, *(f"sqlite:///{tmp_path}/{name}.db" for name in "bc")]
    made: list[Engine] = []

    def make() -> Engine:
        migrate.upgrade(mine := urls.pop(0))
        made.append(connect(mine))
        return made[-1]

    yield make
    for engine in made:
        engine.dispose()


def test_a_lost_request_that_ended_after_all_moves(new_engine: Callable[[], Engine]):
    records = some_records(150)
    lost = [
        RequestRecord(
            id=r.id, ts_ms=r.ts_ms, model=r.model, session_id=r.session_id, status="lost",
            http_status=None, token_source="none", key_id=r.key_id, client=r.client,
        )
        for r in records[::3]
        if r.status != "lost"
    ]  # fmt: skip
    late, straight = new_engine(), new_engine()
    put(late, [*lost, *records[1::2]])
    put(late, records)
    put(late, lost)  # and what is known to be lost no more stays so
    put(straight, records)
    assert names_free(cells(late)) == names_free(cells(straight))
    with late.connect() as connection, straight.connect() as other:
        query = select(request).order_by(request.c.id)
        assert connection.execute(query).all() == other.execute(query).all()


@pytest.mark.postgres
def test_writers_of_several_data_folders_add_to_the_same_cells(
    tmp_path: Path, new_postgres: Callable[[], str]
):
    """Each drains its own journals; the cells are those of all rows, one writer after the other."""
    migrate.upgrade(url := new_postgres())
    records = [some_records(240, seed)[seed::3] for seed in range(3)]
    for at, record in enumerate(itertools.chain(*records)):
        record.id, record.ts_ms = f"{at:05}", EPOCH_MS - at % 7 * 1000
    engines = [connect(url) for _ in records]

    def drain(number: int) -> None:
        writer = Writer(engines[number], tmp_path / f"folder{number}")
        while writer.drain_once(20):
            pass
        writer.close()

    with contextlib.ExitStack() as stack:
        for number, mine in enumerate(records):
            journal = stack.enter_context(Journal(tmp_path / f"folder{number}"))
            for record in mine:
                journal.close(record)
        with ThreadPoolExecutor(len(records)) as pool:
            list(pool.map(drain, range(len(records))))
    kept = names_free(cells(engines[0]))
    with engines[0].begin() as connection:
        assert rebuild(connection) == sum(map(len, records))
    assert names_free(cells(engines[0])) == kept
    for engine in engines:
        engine.dispose()


def test_absurd_counts_overflow_no_cell(engine: Engine):
    huge = [
        RequestRecord(
            id=f"{n}", ts_ms=EPOCH_MS, in_tok=10**30, cost_nusd=-(10**30), e2e_ms=1e300,
            ttft_ms=0.0, spec_steps=1, spec_hist=[10**30, -1],
        )
        for n in range(300)
    ]  # fmt: skip
    put(engine, huge)
    with engine.connect() as connection:
        found = sums(connection, Slice(Window(0, 2 * EPOCH_MS)), ("in_tok", "cost_nusd", "e2e_us"))
        raw = sums(
            connection,
            Slice(Window(EPOCH_MS, EPOCH_MS + 1)),
            ("in_tok", "cost_nusd", "e2e_us"),
        )
    assert found == raw == {(): {"in_tok": 300 * 2**48, "cost_nusd": -300 * 2**48, "e2e_us": 0}}


def test_bins_are_a_hundredth_wide_and_packed_counts_come_back():
    rng = random.Random(4)
    for ms in [2.0**-9, 1.0, 1.5, *(rng.lognormvariate(4, 3) for _ in range(500))]:
        assert abs(middle_ms(bin_of(ms)) / ms - 1) < 0.0055
    assert bin_of(0.0) == bin_of(-1.0) == bin_of(math.nan) == -640
    assert bin_of(math.inf) == 40 * 64
    found = {-640: 2, 0: 1, 777: 10**12}
    assert unpack(pack({**found, 5: 0})) == found


def test_percentiles_are_those_of_the_values():
    rng = random.Random(5)
    values = sorted(rng.lognormvariate(4, 2) for _ in range(1234))
    found = percentiles(dict(Counter(map(bin_of, values))), (50, 90, 95, 99))
    for percent, value in found.items():
        exact = values[math.ceil(percent * len(values) / 100) - 1]
        assert value == pytest.approx(exact, rel=0.0055)
    assert percentiles({}, (50,)) == {}


def test_the_overview_is_the_same_read_from_cells(url: str, monkeypatch: pytest.MonkeyPatch):
    engine = connect(url)
    put(engine, some_records(500))
    engine.dispose()
    reader = Reader(url)
    window = Window(EPOCH_MS - SPAN_MS, EPOCH_MS)
    exact = reader.overview(window, 4 * HOUR_MS)
    monkeypatch.setattr(slices, "ROWS_READ", 0)
    rolled = reader.overview(window, 4 * HOUR_MS)
    reader.close()
    for name in ("ttft", "e2e"):
        one, other = getattr(exact, name), getattr(rolled, name)
        assert one.count == other.count > 100
        assert one.percentile_ms == pytest.approx(other.percentile_ms, rel=0.0055)
        assert sum(map(abs, (a - b for a, b in zip(one.bins, other.bins, strict=True)))) <= 6
    assert without_times(exact) == without_times(rolled)


def without_times(overview: Overview) -> dict[str, Any]:
    found = {name: getattr(overview, name) for name in ("totals", "series", "acceptance", "places")}
    return found | {"recent": [msgspec.to_builtins(r) for r in overview.recent]}
