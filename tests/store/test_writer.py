"""The writer: election, takeover, a database that is away, rows it refuses."""

from __future__ import annotations

import random
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine, event, func, make_url, select
from sqlalchemy.exc import OperationalError

from agentspec.settings import Settings, StoreSettings
from agentspec.store import database, migrate, rows, writer
from agentspec.store.errors import SchemaMismatch
from agentspec.store.journal import FOLDER, Journal
from agentspec.store.record import OpenRecord, RequestRecord
from agentspec.store.replay import Batch
from agentspec.store.rollup_schema import rollup
from agentspec.store.schema import journal_offset, request
from agentspec.store.writer import Drained, Writer, drain_once, elected, run


def done(name: str, **fields) -> RequestRecord:
    return RequestRecord(id=name, ts_ms=1, model="m", **fields)


def ids(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return sorted(connection.execute(select(request.c.id)).scalars())


def settings(directory: Path, url: str) -> Settings:
    return Settings(
        data_dir=str(directory), store=StoreSettings(url=url, drain_interval_s=0.01, drain_rows=7)
    )


@contextmanager
def running(directory: Path, url: str) -> Iterator[tuple[threading.Event, threading.Thread]]:
    stop = threading.Event()
    thread = threading.Thread(target=run, args=(settings(directory, url), stop))
    thread.start()
    try:
        yield stop, thread
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Semaphore]:
    """Released once for each batch that any writer committed."""
    signal = threading.Semaphore(0)
    real = writer.commit

    def commit(engine: Engine, *args):
        refused = real(engine, *args)
        signal.release()
        return refused

    monkeypatch.setattr(writer, "commit", commit)
    yield signal


def test_a_row_holds_every_field_of_its_record(tmp_path: Path, engine: Engine):
    record = done(
        "a",
        spec_sources={"suffix": {"drafted": 3, "accepted": 2}},
        spec_hist=[1, 0, 1],
        decision={"chosen": "engine", "reason": "snow \u2603 \0"},
        stream=True,
        grammar_cold=False,
        temperature=0.7,
        max_tokens=10**30,
        n_tools=2**40,
        session_id="nul \0 here",
        cost_nusd=2**62,
    )
    with Journal(tmp_path) as journal:
        journal.close(record)
        assert drain_once(tmp_path, engine) == Drained(rows=1)
    with engine.connect() as connection:
        row = connection.execute(select(request)).one()._asdict()
    expected = {name: getattr(record, name) for name in record.__struct_fields__}
    expected |= {
        "spec_sources": '{"suffix":{"drafted":3,"accepted":2}}',
        "spec_hist": "[1,0,1]",
        "decision": '{"chosen":"engine","reason":"snow \u2603 \\u0000"}',
        "max_tokens": 2**48,
        "cost_nusd": 2**48,
        "n_tools": 2**31 - 1,
        "session_id": "nul \ufffd here",
    }
    assert row == expected


def test_a_refused_row_is_kept_aside(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    """A value that no check foresaw: the database's own verdict on one row stays on that row."""
    real = rows.to_row
    monkeypatch.setattr(
        rows, "to_row", lambda r: real(r) | ({"status": None} if r.id == "b" else {})
    )
    with Journal(tmp_path) as journal:
        for name in "abc":
            journal.close(done(name))
        assert drain_once(tmp_path, engine) == Drained(rows=2, lost=0, bad=1)
        assert drain_once(tmp_path, engine) == Drained()
    assert ids(engine) == ["a", "c"]
    assert b'"id":"b"' in (tmp_path / FOLDER / "refused.bad").read_bytes()


def test_a_few_refused_rows_among_many_are_found_by_halving(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    """Not by a try a row, which would hold the database for a minute; and all others count once."""
    tries: list[int] = []
    real = rows.write
    monkeypatch.setattr(rows, "write", lambda c, some: tries.append(len(some)) or real(c, some))
    names = [f"{number:03}" for number in range(256)]
    bad = {"007", "200"}
    batch = Batch(rows=[done(name, status=None if name in bad else "ok") for name in names])
    assert rows.commit(engine, batch, tmp_path / "refused") == 2
    assert ids(engine) == [name for name in names if name not in bad]
    assert len(tries) < 40 and tries[0] == 256
    with engine.connect() as connection:
        counted = connection.execute(select(func.sum(rollup["day"].c.requests)))
        assert counted.scalar_one() == 2 * 254  # in each of two cubes


def test_a_long_line_is_read_whole(tmp_path: Path, engine: Engine):
    with Journal(tmp_path) as journal:
        journal.close(done("long", session_id="x" * 1_500_000, decision={"reason": "y" * 300_000}))
        journal.close(done("short"))
        assert drain_once(tmp_path, engine) == Drained(rows=2)
    with engine.connect() as connection:
        row = connection.execute(select(request).where(request.c.id == "long")).one()
    assert row.session_id == "x" * rows.MAX_TEXT
    assert len(row.decision) > 300_000


def test_a_batch_is_bounded_and_every_owner_gets_its_turn(tmp_path: Path, engine: Engine):
    busy, quiet = Journal(tmp_path), Journal(tmp_path)
    for number in range(3000):
        busy.close(done(f"busy{number:04}", session_id="s" * 200))
    quiet.close(done("quiet"))
    one = Writer(engine, tmp_path)
    sizes = [one.drain_once(10), one.drain_once(10)]
    assert all(0 < size < 2000 for size in sizes)
    assert "quiet" in ids(engine)
    while one.drain_once(10):
        pass
    assert one.drained == Drained(rows=3001)
    one.close()
    for journal in (busy, quiet):
        journal.release()


def test_a_new_writer_goes_on_where_the_last_one_stopped(tmp_path: Path, engine: Engine):
    """Opened before, closed after the change: one row, not lost; nothing is read twice."""
    journal = Journal(tmp_path)
    journal.open(OpenRecord(id="a", ts_ms=1))
    journal.open(OpenRecord(id="dies", ts_ms=1))
    journal.close(done("first"))
    assert drain_once(tmp_path, engine) == Drained(rows=1)
    with engine.connect() as connection:
        (offset,) = connection.execute(select(journal_offset.c.bytes)).scalars()
    assert offset == next((tmp_path / FOLDER).glob("*.jsonl")).stat().st_size
    journal.close(done("a"))
    assert drain_once(tmp_path, engine) == Drained(rows=1)
    journal.release()
    assert drain_once(tmp_path, engine) == Drained(rows=1, lost=1)
    with engine.connect() as connection:
        assert connection.execute(select(journal_offset)).all() == []
    assert ids(engine) == ["a", "dies", "first"]


def test_a_closed_request_is_not_lost_though_its_closing_file_is_gone(
    tmp_path: Path, engine: Engine
):
    """The opening file outlives the closing one, because of another request, and is read again."""
    journal = Journal(tmp_path, rotate_bytes=150)
    journal.open(OpenRecord(id="long", ts_ms=1))
    journal.open(OpenRecord(id="a", ts_ms=1, session_id="s" * 150))
    journal.close(done("a", session_id="s" * 150))
    journal.close(done("b"))
    assert drain_once(tmp_path, engine) == Drained(rows=2)
    assert len(list((tmp_path / FOLDER).glob("*.jsonl"))) == 2
    journal.close(done("long"))
    journal.release()
    assert drain_once(tmp_path, engine) == Drained(rows=1, lost=0)
    assert not list((tmp_path / FOLDER).glob("*.jsonl"))


def test_another_users_journal_holds_up_nobody(
    tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch
):
    from agentspec.store import replay

    class Guarded(replay.Tail):
        def __init__(self, path: Path):
            if path.name.startswith("1-other"):
                raise PermissionError(13, "Permission denied", str(path))
            super().__init__(path)

    monkeypatch.setattr(replay, "Tail", Guarded)
    with Journal(tmp_path) as journal:
        journal.close(done("a"))
        (tmp_path / FOLDER / "1-other.000001.jsonl").write_bytes(b"")
        assert drain_once(tmp_path, engine) == Drained(rows=1)
    assert (tmp_path / FOLDER / "1-other.000001.jsonl").exists()


def test_two_writers_one_works_and_the_other_takes_over(
    tmp_path: Path, url: str, engine: Engine, committed: threading.Semaphore
):
    with Journal(tmp_path) as journal, running(tmp_path, url) as (stop, first):
        journal.close(done("a"))
        assert committed.acquire(timeout=30)
        with elected(tmp_path, _set(), 0.01) as won:
            assert not won
        with running(tmp_path, url) as (_, second):
            journal.close(done("b"))
            assert committed.acquire(timeout=30)
            stop.set()
            first.join()
            assert second.is_alive()
            journal.close(done("c"))
            assert committed.acquire(timeout=30)
    assert ids(engine) == ["a", "b", "c"]
    assert not committed.acquire(blocking=False), "two writers committed the same row"


def test_stopping_drains_what_was_there(tmp_path: Path, url: str, engine: Engine):
    with Journal(tmp_path) as journal:
        for number in range(30):
            journal.close(done(f"{number:02}"))
        run(settings(tmp_path, url), _set())
    assert len(ids(engine)) == 30


def _set() -> threading.Event:
    stop = threading.Event()
    stop.set()
    return stop


@pytest.fixture
def failed(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the writer has failed three times in a row. Its pauses are cut short."""
    failed = threading.Event()
    real = writer._Loop._pause_s

    def pause(self: writer._Loop) -> float:
        if self._failures > 2:
            failed.set()
        return min(real(self), 0.01)

    monkeypatch.setattr(writer._Loop, "_pause_s", pause)
    return failed


@pytest.mark.postgres
def test_a_postgresql_that_goes_down_and_comes_back(
    tmp_path: Path,
    new_postgres: Callable[[], str],
    postgres_server: str,
    committed: threading.Semaphore,
    failed: threading.Event,
):
    """Its connections are cut and new ones refused, then let in again."""
    migrate.upgrade(url := new_postgres())
    name = make_url(url).database

    def allow(allowed: bool) -> None:
        with psycopg.connect(postgres_server, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS {allowed}".encode())
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
            )

    with Journal(tmp_path) as journal, running(tmp_path, url):
        journal.close(done("before"))
        assert committed.acquire(timeout=60)
        allow(False)
        journal.close(done("while"))
        assert failed.wait(60)
        journal.close(done("still"))
        allow(True)
        assert committed.acquire(timeout=60)
    engine = database.connect(url)
    assert ids(engine) == ["before", "still", "while"]
    engine.dispose()


def test_a_locked_database_is_waited_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    committed: threading.Semaphore,
    failed: threading.Event,
):
    monkeypatch.setattr(database, "BUSY_TIMEOUT_MS", 1)
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    blocker = sqlite3.connect(tmp_path / "agentspec.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with Journal(tmp_path) as journal, running(tmp_path, url):
        journal.close(done("a"))
        assert failed.wait(30)
        journal.close(done("b"))
        assert not committed.acquire(blocking=False)
        blocker.execute("ROLLBACK")
        assert committed.acquire(timeout=30)
    blocker.close()
    engine = database.connect(url)
    assert ids(engine) == ["a", "b"]
    engine.dispose()


@pytest.mark.postgres
def test_postgresqls_own_limits_block_nothing(
    tmp_path: Path, new_postgres: Callable[[], str], monkeypatch: pytest.MonkeyPatch
):
    """It calls an index entry too long an operational error, though trying again is in vain."""
    monkeypatch.setattr(rows, "MAX_TEXT", 10**9)
    noise = random.Random(0).randbytes(100_000).hex()  # it compresses what is regular
    migrate.upgrade(url := new_postgres())
    engine = database.connect(url)
    with Journal(tmp_path) as journal:
        journal.close(done("long", session_id=noise))
        journal.close(done("short"))
        assert drain_once(tmp_path, engine) == Drained(rows=1, bad=1)
    engine.dispose()


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_failed_commit_is_tried_again(moment: str, tmp_path: Path, engine: Engine):
    """Also one that succeeded without our learning of it (the connection broke off)."""
    failing = [True]

    @event.listens_for(engine, f"{moment}_cursor_execute")
    def fail(_connection, _cursor, statement: str, *_: object) -> None:
        if failing and statement.startswith("INSERT INTO journal_offset"):
            raise OperationalError(statement, None, Exception("server closed the connection"))

    with Journal(tmp_path) as journal:
        journal.open(OpenRecord(id="a", ts_ms=1))
        journal.close(done("a"))
        one = Writer(engine, tmp_path)
        for _ in range(2):
            with pytest.raises(OperationalError):
                one.drain_once()
        assert ids(engine) == []
        failing.clear()
        assert one.drain_once() == 1
        assert one.drained == Drained(rows=1)
        one.close()
    assert ids(engine) == ["a"]


def test_an_older_or_newer_database_stops_the_writer_and_keeps_the_journal(
    tmp_path: Path, empty_url: str
):
    with Journal(tmp_path) as journal:
        journal.close(done("a"))
        with pytest.raises(SchemaMismatch, match="run `agentspec db upgrade`"):
            run(settings(tmp_path, empty_url), _set())
        migrate.upgrade(empty_url)
        run(settings(tmp_path, empty_url), _set())
    engine = database.connect(empty_url)
    assert ids(engine) == ["a"]
    engine.dispose()
