"""Pruning, PostgreSQL's partitions, and export, with a writer's upkeep around them."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import Engine, func, select, text

from agentspec.cli import main
from agentspec.settings import StoreSettings
from agentspec.store import migrate, partition, retention, upkeep
from agentspec.store.connection import reading
from agentspec.store.database import connect, connect_reader
from agentspec.store.export import export
from agentspec.store.rebuild import floors, keep_rows, rebuild
from agentspec.store.record import CallRecord, CallsRecord, RequestRecord
from agentspec.store.replay import Batch
from agentspec.store.retention import prune_once
from agentspec.store.rollup_schema import DAY_MS, HOUR_MS, rollup
from agentspec.store.rows import commit, to_row, write
from agentspec.store.schema import request
from agentspec.store.slices import Slice, sums
from agentspec.store.upkeep import EVERY_MS, Upkeep
from agentspec.store.window import Window
from tests.store.ledger import EPOCH_MS, insert, random_record

SPAN_MS = 40 * DAY_MS
ALL = Window(EPOCH_MS - SPAN_MS, EPOCH_MS)


@pytest.fixture
def records(engine: Engine) -> list[RequestRecord]:
    """In the ledger: some of the forty days before ``EPOCH_MS``."""
    rng = random.Random(8)
    records = [random_record(rng, number, SPAN_MS) for number in range(200)]
    with engine.begin() as connection:
        write(connection, [to_row(record) for record in records])
    return records


def times(engine: Engine) -> list[int]:
    with engine.connect() as connection:
        return sorted(connection.execute(select(request.c.ts_ms)).scalars())


def test_rows_go_in_pieces_and_their_sums_stay(engine: Engine, records: list[RequestRecord]):
    before_ms = retention.rounded(engine, "request", EPOCH_MS - 10 * DAY_MS)
    slice = Slice(Window(ALL.since_ms - ALL.since_ms % DAY_MS, EPOCH_MS))
    with engine.connect() as connection:
        counted = sums(connection, slice, ("requests", "in_tok"))
    pieces = 0
    while count := retention.prune_once(engine, "request", EPOCH_MS - 10 * DAY_MS, rows=7):
        assert count == 7 or times(engine)[0] >= before_ms
        pieces += 1
    assert times(engine) == sorted(r.ts_ms for r in records if r.ts_ms >= before_ms)
    assert pieces > 3
    with engine.begin() as connection:
        assert floors(connection)["request"] == before_ms
        assert sums(connection, slice, ("requests", "in_tok")) == counted
        rebuild(connection)  # leaves alone what the rows no longer tell
        assert sums(connection, slice, ("requests", "in_tok")) == counted
    assert counted[()]["requests"] == len(records)


def test_without_minutes_answers_stay_exact(engine: Engine, records: list[RequestRecord]):
    retention.prune(engine, "minute", EPOCH_MS - 5 * DAY_MS + 1, pause_s=0)
    with engine.connect() as connection:
        oldest = connection.scalar(select(func.min(rollup["minute"].c.bucket_ms)))
        window = Window(EPOCH_MS - 30 * DAY_MS + 1234, EPOCH_MS - 6 * DAY_MS - 777)
        found = sums(connection, Slice(window), ("requests", "out_tok"))[()]
    rows = [r for r in records if window.since_ms <= r.ts_ms < window.until_ms]
    assert oldest is not None and oldest >= EPOCH_MS - 5 * DAY_MS
    assert found == {"requests": len(rows), "out_tok": sum(r.out_tok for r in rows)}


def test_the_writers_upkeep_prunes_when_it_is_time(engine: Engine, records: list[RequestRecord]):
    now = [EPOCH_MS]
    settings = StoreSettings(keep_days=10, keep_minutes_days=3)
    upkeep = Upkeep(engine, settings, lambda: now[0])
    while upkeep.step():
        pass
    limit_ms = retention.rounded(engine, "request", EPOCH_MS - 10 * DAY_MS)
    kept = times(engine)
    assert kept == sorted(r.ts_ms for r in records if r.ts_ms >= limit_ms)
    assert 0 < len(kept) < len(records)
    now[0] += EVERY_MS - 1
    assert not upkeep.step() and not upkeep._waiting
    now[0] += 1
    assert upkeep.step()


@pytest.mark.postgres
def test_partitions_come_ahead_of_time_and_go_whole(new_postgres: Callable[[], str]):
    migrate.upgrade(url := new_postgres())
    engine = connect(url)
    january, march = (int(datetime(2027, m, 9, tzinfo=UTC).timestamp() * 1000) for m in (1, 3))
    with engine.begin() as connection:
        rows = [to_row(RequestRecord(id=str(at), ts_ms=at)) for at in (1, january, march)]
        write(connection, rows)
        assert in_default(connection) == 3
        assert partition.ensure(connection, "request", january) == [
            "request_p202701",
            "request_p202702",
        ]
        assert in_default(connection) == 2  # January's moved over
        assert partition.ensure(connection, "request", january) == []
        partition.ensure(connection, "request", march)
        names = partition.ensure(connection, "request_payload", march)
        assert names == ["request_payload_p20270309", "request_payload_p20270310"]
    assert retention.prune(engine, "request", march, pause_s=0) == 1  # the stray of 1970
    with engine.connect() as connection:
        left = [part.name for part in partition.existing(connection, "request")]
    assert left == ["request_p202703", "request_p202704"]
    assert times(engine) == [march]
    engine.dispose()
    assert migrate.check(url) == migrate.REVISION


def in_default(connection) -> int:
    return connection.scalar(text("SELECT count(*) FROM request_default"))


def test_export_holds_every_row_once(
    tmp_path: Path, url: str, records: list[RequestRecord], capsys: pytest.CaptureFixture[str]
):
    parquet = pytest.importorskip("pyarrow.parquet")
    config = tmp_path / "agentspec.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    since = datetime.fromtimestamp((EPOCH_MS - 3 * DAY_MS) / 1000, UTC).date()
    command = ["db", "export", "--config", str(config), "--to", str(tmp_path / "out")]
    assert main([*command, "--since", since.isoformat()]) == 0
    since_ms = EPOCH_MS - 3 * DAY_MS
    since_ms -= since_ms % DAY_MS
    files = sorted((tmp_path / "out/request").glob("date=*/part.parquet"))
    found = [
        row for file in files for row in parquet.read_table(file, partitioning=None).to_pylist()
    ]
    rows = sorted((to_row(r) for r in records if r.ts_ms >= since_ms), key=lambda r: r["ts_ms"])
    assert found == rows and rows
    assert str(files[0]) in capsys.readouterr().out
    for file in files:
        day = int(datetime.fromisoformat(file.parent.name[5:] + "+00:00").timestamp()) * 1000
        assert {t - t % DAY_MS for t in parquet.read_table(file)["ts_ms"].to_pylist()} == {day}


@pytest.mark.parametrize(
    "command",
    [
        ["db", "prune", "requests", "--before", "2026-01-01"],
        ["db", "rebuild-rollups"],
        ["db", "export", "--to", "out"],
        ["prices", "set", "m", "--input", "1"],
        ["prices", "withdraw", "1"],
        ["keys", "list"],
        ["keys", "show", "k"],
        ["keys", "limit", "k", "--rpm", "1"],
        ["keys", "revoke", "k"],
        ["keys", "project", "list"],
    ],
)
def test_a_folder_mistyped_stays_as_it_is(
    tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main([*command, "--data-dir", str(tmp_path / "typo")]) != 0
    assert "there is no ledger at" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_export_of_nothing_says_so(
    tmp_path: Path, url: str, records: list[RequestRecord], capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("pyarrow.parquet")
    config = tmp_path / "agentspec.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    command = ["db", "export", "--config", str(config), "--to", str(tmp_path / "out")]
    assert main([*command, "--since", "2001-01-01", "--until", "2001-01-02"]) == 0
    assert "no rows" in capsys.readouterr().out
    for until in ("2001-01-01", "2000-12-31"):
        assert main([*command, "--since", "2001-01-01", "--until", until]) != 0
        assert "--until" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("ts_ms", [-(2**62), -1, 253_402_300_800_000, 2**62])
def test_a_clock_beyond_all_calendars_hinders_no_export(tmp_path: Path, engine: Engine, ts_ms: int):
    pytest.importorskip("pyarrow.parquet")
    call = CallsRecord("odd", ts_ms, [CallRecord("f", True)])
    batch = Batch(rows=[RequestRecord("odd", ts_ms, cost_nusd=3)], notes=[call])
    assert commit(engine, batch, tmp_path / "refused") == 0
    with engine.connect() as connection:
        done = export(connection, tmp_path / "out")
    day = "date=1970-01-01" if ts_ms < 0 else "date=2199-12-31"
    assert [(one.path.parent.name, one.rows) for one in done] == [(day, 1)] * 2


def test_prune_and_rebuild_by_hand(
    tmp_path: Path,
    records: list[RequestRecord],
    url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(upkeep, "now_ms", lambda: EPOCH_MS)
    config = tmp_path / "agentspec.toml"
    config.write_text(f'[store]\nurl = "{url}"\n')
    day = datetime.fromtimestamp((EPOCH_MS - HOUR_MS) / 1000, UTC).date().isoformat()
    assert main(["db", "prune", "minutes", "--before", day, "--config", str(config)]) == 0
    assert main(["db", "rebuild-rollups", "--config", str(config)]) == 0
    assert f"those of {len(records)} rows" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["db", "prune", "minutes", "--before", "yesterday"])
    with pytest.raises(SystemExit):
        main(["db", "prune", "minutes", "--before", "0001-01-01"])
    capsys.readouterr()
    later = ["db", "prune", "requests", "--before", "2190-01-01", "--config", str(config)]
    assert main(later) != 0 and "in the future" in capsys.readouterr().err
    with reading(url) as connection:
        assert "request" not in floors(connection)
        assert connection.scalar(select(func.count()).select_from(request)) == len(records)


@pytest.mark.postgres
def test_pruning_waits_for_a_rebuild(new_postgres: Callable[[], str]):
    """What a rebuild has taken away it has not yet put back: no row of that may go."""
    url = new_postgres()
    migrate.upgrade(url)
    month = 40 * DAY_MS
    insert(url, [random_record(random.Random(n), n, month) for n in range(200)])
    rebuilding, pruning, reader = connect(url), connect(url), connect_reader(url)
    done = threading.Event()

    def prune_now() -> None:
        while prune_once(pruning, "request", EPOCH_MS):
            pass
        done.set()

    with rebuilding.begin() as connection:
        keep_rows(connection)
        thread = threading.Thread(target=prune_now)
        thread.start()
        waiting = text("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        with reader.connect() as looking:
            while not looking.scalar(waiting):
                assert not done.is_set()
                looking.rollback()
        assert rebuild(connection) == 200
    thread.join()
    with pruning.connect() as connection:
        known = floors(connection)
        assert known["request"] > 0
        whole = sums(connection, Slice(Window(0, 2 * EPOCH_MS), {}, known), ("requests",))
    assert whole == {(): {"requests": 200}}
    for engine in (rebuilding, pruning, reader):
        engine.dispose()
