"""The journal: one write a record, whole or reported; forks, threads, rotation, full disks."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

import msgspec
import pytest
from sqlalchemy import Engine, select

from agentspec.store import journal as journal_module
from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.errors import JournalError
from agentspec.store.journal import FOLDER, Journal
from agentspec.store.record import OpenRecord, RequestRecord
from agentspec.store.schema import request
from agentspec.store.writer import Drained, drain_once


@pytest.fixture
def ledger(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    engine = connect(url)
    yield engine
    engine.dispose()


def opened(name: str) -> OpenRecord:
    return OpenRecord(id=name, ts_ms=1, model="m")


def done(name: str, **fields) -> RequestRecord:
    return RequestRecord(id=name, ts_ms=1, model="m", **fields)


def files(directory: Path, pattern: str = "*.jsonl") -> list[Path]:
    return sorted((directory / FOLDER).glob(pattern))


def statuses(engine: Engine) -> dict[str, str]:
    with engine.connect() as connection:
        rows = connection.execute(select(request.c.id, request.c.status))
        return {row.id: row.status for row in rows}


@pytest.fixture
def writes(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """What the journal hands to write(2), in order."""
    seen: list[bytes] = []
    real = os.write

    def write(fd: int, data: bytes) -> int:
        seen.append(data)
        return real(fd, data)

    monkeypatch.setattr(journal_module.os, "write", write)
    return seen


def test_each_record_is_one_write_on_an_appending_file(tmp_path: Path, writes: list[bytes]):
    with Journal(tmp_path) as journal:
        journal.open(opened("a"))
        journal.close(done("a", spec_hist=[1, 2], decision={"reason": "line\nbreak"}))
    (path,) = files(tmp_path)
    assert len(writes) == 2
    assert path.read_bytes() == b"".join(writes)
    decoder = msgspec.json.Decoder(OpenRecord | RequestRecord)
    first, second = (decoder.decode(line) for line in path.read_bytes().splitlines())
    assert first == opened("a")
    assert second == done("a", spec_hist=[1, 2], decision={"reason": "line\nbreak"})


def test_nothing_is_made_before_the_first_record(tmp_path: Path):
    Journal(tmp_path).release()
    assert not (tmp_path / FOLDER).exists()


def test_a_record_cut_short_is_reported_and_costs_no_other(
    tmp_path: Path, ledger: Engine, monkeypatch: pytest.MonkeyPatch
):
    real = os.write
    room = iter([1000, 20, 0, 1000, 1000])

    def write(fd: int, data: bytes) -> int:
        size = next(room)
        if size == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[:size])

    journal = Journal(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "write", write)
        journal.close(done("before"))
        for _ in ("short", "none"):
            with pytest.raises(JournalError) as caught:
                journal.close(done("victim"))
            assert caught.value.errno == errno.ENOSPC
        journal.close(done("after"))
        journal.open(opened("flying"))
    assert drain_once(tmp_path, ledger) == Drained(rows=2, lost=0, bad=1)
    journal.release()
    assert drain_once(tmp_path, ledger) == Drained(rows=1, lost=1, bad=0)
    assert statuses(ledger) == {"before": "ok", "after": "ok", "flying": "lost"}
    (bad,) = files(tmp_path, "*.bad")
    assert bad.read_bytes() == msgspec.json.encode(done("victim"))[:20] + b"\n"


def test_a_lost_request_has_no_status_and_no_times(tmp_path: Path, ledger: Engine):
    journal = Journal(tmp_path)
    journal.open(opened("flying"))
    journal.release()
    drain_once(tmp_path, ledger)
    times = [request.c[n] for n in ("http_status", "queue_ms", "ttft_ms", "tpot_ms", "e2e_ms")]
    with ledger.connect() as connection:
        assert connection.execute(select(*times)).one() == (None,) * 5


def test_a_torn_end_of_a_dead_owner_is_kept_aside(tmp_path: Path, ledger: Engine):
    journal = Journal(tmp_path)
    journal.open(opened("a"))
    journal.close(done("b"))
    journal.release()
    (path,) = files(tmp_path)
    with open(path, "ab") as file:
        file.write(b'{"t":"done","id":"a"')
    assert drain_once(tmp_path, ledger) == Drained(rows=2, lost=1, bad=1)
    assert statuses(ledger) == {"a": "lost", "b": "ok"}
    assert files(tmp_path) == []
    assert files(tmp_path, "*.bad")[0].read_bytes() == b'{"t":"done","id":"a"\n'


@pytest.mark.parametrize(
    "line", [b"nonsense", b"{}", b"\xff\xfe", b'{"t":"done","id":3,"ts_ms":1}', b"\x00" * 50]
)
def test_a_bad_line_blocks_nothing(line: bytes, tmp_path: Path, ledger: Engine):
    journal = Journal(tmp_path)
    journal.close(done("a"))
    (path,) = files(tmp_path)
    with open(path, "ab") as file:
        file.write(line + b"\n")
    journal.close(done("b"))
    assert drain_once(tmp_path, ledger) == Drained(rows=2, lost=0, bad=1)
    assert files(tmp_path, "*.bad")[0].read_bytes() == line + b"\n"
    journal.release()


def test_a_record_that_cannot_be_encoded_is_an_error_of_its_own(tmp_path: Path):
    journal = Journal(tmp_path)
    with pytest.raises(JournalError, match="'x' cannot be journalled"):
        journal.close(done("x", decision={"chosen": object()}))
    with pytest.raises(JournalError):
        journal.close(done("x", session_id="\ud800"))


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path):
    (tmp_path / FOLDER).write_text("a file is in the way")
    with pytest.raises(JournalError) as caught:
        Journal(tmp_path).open(opened("a"))
    assert caught.value.errno == errno.EEXIST


def test_rotation_leaves_a_file_until_its_last_request_is_closed(tmp_path: Path, ledger: Engine):
    journal = Journal(tmp_path, rotate_bytes=300)
    journal.open(opened("long"))
    for number in range(20):
        journal.open(opened(f"r{number}"))
        journal.close(done(f"r{number}"))
    before = files(tmp_path)
    assert len(before) > 3
    drain_once(tmp_path, ledger)
    assert files(tmp_path) == [before[0], before[-1]]
    journal.close(done("long"))
    assert drain_once(tmp_path, ledger).lost == 0
    assert before[0] not in files(tmp_path)
    journal.release()
    assert drain_once(tmp_path, ledger).lost == 0
    assert files(tmp_path) == []
    assert set(statuses(ledger).values()) == {"ok"} and len(statuses(ledger)) == 21


def test_rotation_without_room_for_a_file_goes_on_in_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    journal = Journal(tmp_path, rotate_bytes=10)
    journal.close(done("a"))

    def no_room(*_: object, **__: object) -> int:
        raise OSError(errno.ENOSPC, "no room")

    with monkeypatch.context() as patch:
        patch.setattr(journal_module.os, "open", no_room)
        journal.close(done("b"))
    assert len(files(tmp_path)) == 1
    journal.close(done("c"))
    assert [len(path.read_bytes().splitlines()) for path in files(tmp_path)] == [2, 1]
    journal.release()


def test_threads_share_a_journal(tmp_path: Path, ledger: Engine):
    journal = Journal(tmp_path, rotate_bytes=2000)

    def work(thread: int) -> None:
        for number in range(50):
            journal.open(opened(f"{thread}-{number}"))
            journal.close(done(f"{thread}-{number}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    journal.release()
    assert drain_once(tmp_path, ledger) == Drained(rows=200, lost=0, bad=0)


FORK = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # other tests' threads


@FORK
def test_a_forked_child_has_a_file_and_a_death_of_its_own(tmp_path: Path, ledger: Engine):
    journal = Journal(tmp_path)
    journal.open(opened("parent"))
    pid = os.fork()
    if pid == 0:
        journal.open(opened("child"))
        os._exit(0)
    os.waitpid(pid, 0)
    assert drain_once(tmp_path, ledger) == Drained(rows=1, lost=1, bad=0)
    assert statuses(ledger) == {"child": "lost"}
    journal.close(done("parent"))
    drain_once(tmp_path, ledger)
    assert statuses(ledger) == {"child": "lost", "parent": "ok"}
    journal.release()


@FORK
def test_a_living_child_does_not_hide_its_parents_death(tmp_path: Path, ledger: Engine):
    reading, writing = os.pipe()
    journal = Journal(tmp_path)
    journal.open(opened("parent"))
    pid = os.fork()
    if pid == 0:
        os.read(reading, 1)  # lives on until the parent says so
        os._exit(0)
    try:
        journal.release()
        assert drain_once(tmp_path, ledger).lost == 1
    finally:
        os.write(writing, b".")
        os.waitpid(pid, 0)
        os.close(reading)
        os.close(writing)


def test_an_owner_whose_fresh_file_was_taken_for_dead_makes_another(
    tmp_path: Path, ledger: Engine, monkeypatch: pytest.MonkeyPatch
):
    """The writer comes between the creation of the file and its lock, and deletes it."""
    real, calls = journal_module.fcntl.flock, []

    def flock(fd: int, how: int) -> None:
        if not calls:
            calls.append(fd)
            drain_once(tmp_path, ledger)
        real(fd, how)

    monkeypatch.setattr(journal_module.fcntl, "flock", flock)
    with Journal(tmp_path) as journal:
        journal.close(done("a"))
        assert drain_once(tmp_path, ledger).rows == 1
    assert calls


def test_closing_twice_leaves_the_first_row(tmp_path: Path, ledger: Engine):
    with Journal(tmp_path) as journal:
        journal.close(done("a", out_tok=1))
        journal.close(done("a", out_tok=2))
    drain_once(tmp_path, ledger)
    with ledger.connect() as connection:
        assert connection.execute(select(request.c.out_tok)).scalars().all() == [1]
