"""Migrations on both databases: up, equal to the models, down, up again; other revisions."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import inspect, text
from sqlalchemy.exc import OperationalError

from agentspec.bench.store_migrations import walk
from agentspec.resources import data_dir
from agentspec.store import migrate
from agentspec.store.connection import reading
from agentspec.store.database import connect, connect_reader
from agentspec.store.errors import Damaged, SchemaMismatch, StoreError
from agentspec.store.rebuild import rebuild
from agentspec.store.record import RequestRecord
from agentspec.store.retention import prune
from agentspec.store.schema import REVISION, request
from agentspec.store.slices import Slice, sums
from agentspec.store.window import Window
from tests.store.ledger import EPOCH_MS, insert, random_record


def tables(url: str) -> set[str]:
    engine = connect(url)
    names = set(inspect(engine).get_table_names())
    engine.dispose()
    return names


def execute(url: str, statement: str) -> None:
    engine = connect(url)
    with engine.begin() as connection:
        connection.execute(text(statement))
    engine.dispose()


def test_up_check_down_up(empty_url: str):
    migrate.upgrade(empty_url)
    assert migrate.check(empty_url) == REVISION
    insert(empty_url, [RequestRecord(id="a", ts_ms=1)])
    migrate.upgrade(empty_url)  # nothing to do, nothing lost
    engine = connect(empty_url)
    with engine.connect() as connection:
        assert connection.execute(request.select()).one().id == "a"
    engine.dispose()
    migrate.downgrade(empty_url, "base")
    assert tables(empty_url) == {"alembic_version"}
    migrate.upgrade(empty_url)
    assert migrate.check(empty_url) == REVISION


def test_every_migration_keeps_two_thousand_rows(url: str):
    """Down and up again, and the rollups made anew at the end. ``bench store`` does 100,000."""
    steps = walk(url, 2000, EPOCH_MS)
    assert [step["lost"] for step in steps] == [0] * len(steps)
    assert [step["what"] for step in steps[:: len(steps) - 1]] == [
        f"down to {int(REVISION) - 1:04}",
        f"up to {REVISION}",
    ]
    assert steps[0]["n"] == 2000


def test_tokens_written_to_a_cache_before_their_sums_are_in_them(url: str):
    written = RequestRecord("w", EPOCH_MS, cache_write_tok=300, cache_write_1h_tok=100)
    insert(url, [written, RequestRecord("none", EPOCH_MS)])
    migrate.downgrade(url, "0009")
    migrate.upgrade(url)
    engine = connect(url)
    with engine.connect() as connection:
        window = Slice(Window(EPOCH_MS - 10**8, EPOCH_MS + 10**8))
        (found,) = sums(connection, window, ("requests", "cache_write_tok")).values()
    engine.dispose()
    assert found == {"requests": 2, "cache_write_tok": 300}


def test_the_models_name_the_newest_script():
    config = Config()
    config.set_main_option("script_location", str(data_dir("migrations")))
    assert ScriptDirectory.from_config(config).get_heads() == [REVISION]


def test_columns_are_the_records_fields():
    fields = msgspec.structs.fields(RequestRecord)
    assert [column.name for column in request.columns] == [field.name for field in fields]
    for field in fields:
        optional = type(None) in getattr(field.type, "__args__", ())
        assert request.c[field.name].nullable == optional, field.name


def test_indexes_serve_the_questions_asked(url: str):
    engine = connect(url)
    found = {tuple(index["column_names"]) for index in inspect(engine).get_indexes("request")}
    engine.dispose()
    assert found == {("ts_ms",), ("session_id", "ts_ms"), ("key_id", "ts_ms")}


@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE request ADD COLUMN extra TEXT",
        "DROP INDEX ix_request_ts_ms",
        "DROP TABLE journal_offset",
    ],
)
def test_check_names_what_differs(change: str, url: str):
    execute(url, change)
    with pytest.raises(SchemaMismatch) as caught:
        migrate.check(url)
    assert change.split()[-2 if "ADD" in change else -1] in str(caught.value)


@pytest.mark.parametrize(
    "found, message",
    [("0000", "older than this agentspec"), ("9999", "newer than this agentspec")],
)
def test_other_revisions_are_refused(found: str, message: str, url: str):
    execute(url, f"UPDATE alembic_version SET version_num = '{found}'")
    with pytest.raises(SchemaMismatch, match=message):
        migrate.check(url)
    if found > REVISION:
        with pytest.raises(SchemaMismatch, match=message):
            migrate.upgrade(url)


def test_upgrades_at_once_wait_for_each_other(empty_url: str):
    errors = []

    def upgrade() -> None:
        try:
            migrate.upgrade(empty_url)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=upgrade) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert migrate.check(empty_url) == REVISION


def test_a_failed_upgrade_leaves_nothing_behind(empty_url: str):
    execute(empty_url, "CREATE TABLE journal_offset (x INTEGER)")  # in the way of 0001's second
    with pytest.raises(Exception, match="already exists"):
        migrate.upgrade(empty_url)
    assert "request" not in tables(empty_url)


def test_works_from_any_directory(tmp_path: Path):
    code = "from agentspec.store import migrate; migrate.upgrade('sqlite:///here/agentspec.db')"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True, env=environment)
    assert migrate.check(f"sqlite:///{tmp_path}/here/agentspec.db") == REVISION


def test_sqlite_is_set_up_for_one_writer_and_many_readers(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/a b%.db"
    migrate.upgrade(url)
    engine = connect(url)
    with engine.connect() as connection:
        value = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "busy_timeout", "auto_vacuum")
        }
    engine.dispose()
    assert value == {
        "journal_mode": "wal",
        "synchronous": 1,
        "busy_timeout": 5000,
        "auto_vacuum": 2,
    }


def test_a_reader_cannot_write(url: str):
    reader = connect_reader(url)
    with pytest.raises(Exception, match="read-?only"), reader.begin() as connection:
        connection.execute(text("DELETE FROM request"))
    reader.dispose()


def test_a_reader_makes_no_database(tmp_path: Path):
    reader = connect_reader(f"sqlite:///{tmp_path}/none.db")
    with pytest.raises(OperationalError, match="unable to open"):
        reader.connect()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["nonsense", "mysql://localhost/x", "postgres://localhost/x"])
def test_a_url_of_something_else_is_refused(url: str):
    with pytest.raises(StoreError, match="store.url"):
        connect(url)


def test_plain_postgresql_is_psycopg_3():
    assert connect("postgresql://localhost/x").driver == "psycopg"


def test_check_tells_damage(url: str):
    """Rollups that are not those of the rows, a revision too many; and pruned days are none."""
    rows = [random_record(random.Random(n), n, 3 * 86_400_000) for n in range(50)]
    insert(url, rows)
    assert migrate.check(url) == REVISION
    engine = connect(url)
    prune(engine, "request", EPOCH_MS - 2 * 86_400_000)
    assert migrate.check(url) == REVISION
    with engine.begin() as connection:
        connection.execute(text("INSERT INTO alembic_version VALUES ('0000')"))
    with pytest.raises(SchemaMismatch, match=f"several revisions at once: 0000, {REVISION}"):
        migrate.check(url)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM alembic_version WHERE version_num = '0000'"))
        gone = max(rows, key=lambda row: row.ts_ms).id
        connection.execute(text("DELETE FROM request WHERE id = :id"), {"id": gone})
    with pytest.raises(Damaged, match="in the rollups by day .cube 1.*rebuild-rollups"):
        migrate.check(url)
    with engine.begin() as connection:
        rebuild(connection)
    assert migrate.check(url) == REVISION
    engine.dispose()


def test_check_reads_sqlites_file(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    insert(url, [random_record(random.Random(n), n) for n in range(300)])
    engine = connect(url)
    with engine.begin() as connection:
        root = connection.scalar(
            text("SELECT rootpage FROM sqlite_master WHERE name = 'ix_request_ts_ms'")
        ) or connection.scalar(text("SELECT rootpage FROM sqlite_master WHERE name = 'request'"))
        size = connection.scalar(text("PRAGMA page_size"))
    with engine.connect() as connection:
        connection.exec_driver_sql("COMMIT")
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.exec_driver_sql("BEGIN")
    engine.dispose()
    with open(tmp_path / "agentspec.db", "r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(Damaged):
        migrate.check(url)


def test_a_missing_ledger_is_said_clearly(tmp_path: Path):
    with (
        pytest.raises(SchemaMismatch, match="there is no ledger at .*agentspec db upgrade"),
        reading(f"sqlite:///{tmp_path / 'none.db'}"),
    ):
        pass


def test_a_new_file_is_opened_by_many_at_once(tmp_path: Path):
    """They all want to change its journal mode, which SQLite lets none of them wait for."""
    for round in range(40):
        url, errors, start = f"sqlite:///{tmp_path}/{round}.db", [], threading.Barrier(8)

        def write(url=url, errors=errors, start=start) -> None:
            engine = connect(url)
            start.wait()
            try:
                with engine.begin() as connection:
                    connection.exec_driver_sql("CREATE TABLE IF NOT EXISTS t (x)")
            except Exception as error:
                errors.append(error)
            engine.dispose()

        threads = [threading.Thread(target=write) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
