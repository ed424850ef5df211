"""kill -9 of those who write the journal and of the writer: every finished request has one row."""

from __future__ import annotations

import collections
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from sqlalchemy import Engine, select

from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.journal import FOLDER
from agentspec.store.schema import request
from agentspec.store.writer import drain_once

HERE = Path(__file__).parent


def start(script: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, str(HERE / script), *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def kill(process: subprocess.Popen[str]) -> list[str]:
    """kill -9; returns the lines it had said that were not read yet."""
    process.send_signal(signal.SIGKILL)
    rest, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL
    return rest.splitlines()


def said(lines: list[str]) -> dict[str, set[str]]:
    """The ids behind each word; a last line without its end is no statement."""
    words: dict[str, set[str]] = collections.defaultdict(set)
    for line in lines:
        word, name = line.split()
        words[word].add(name)
    return words


def statuses(engine: Engine) -> dict[str, str]:
    with engine.connect() as connection:
        rows = connection.execute(select(request.c.id, request.c.status)).all()
    found = {row.id: row.status for row in rows}
    assert len(found) == len(rows)
    return found


def check(found: dict[str, str], words: dict[str, set[str]]) -> None:
    """What is known to be written is there; what was being written at the kill may be either."""
    assert found.keys() >= words["opened"]
    assert found.keys() <= words["open"]
    for name, status in found.items():
        if name in words["closed"]:
            assert status == "ok"
        elif name not in words["close"]:
            assert status == "lost"


@pytest.fixture
def ledger(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    engine = connect(url)
    yield engine
    engine.dispose()


@pytest.mark.parametrize("seed", range(4))
def test_killed_while_journalling(seed: int, tmp_path: Path, ledger: Engine):
    rng = random.Random(seed)
    process = start("journal_process.py", tmp_path, seed)
    assert process.stdout is not None
    lines = [process.stdout.readline() for _ in range(rng.randrange(1, 400))]
    during = drain_once(tmp_path, ledger)  # the owner lives: nothing of it is lost
    assert during.lost == 0
    lines += kill(process)

    drained = drain_once(tmp_path, ledger)
    found = statuses(ledger)
    check(found, said([line for line in lines if line.strip()]))
    assert drained.lost == sum(status == "lost" for status in found.values())
    assert drained.bad == during.bad == 0
    assert during.rows + drained.rows == len(found)

    again = drain_once(tmp_path, ledger)
    assert (again.rows, again.lost) == (0, 0)
    assert statuses(ledger) == found
    assert not list((tmp_path / FOLDER).glob("*.jsonl"))


@pytest.mark.parametrize("seed", range(3))
def test_writer_killed_in_a_transaction(seed: int, tmp_path: Path, ledger: Engine):
    """Writers die at random steps while a process goes on journalling."""
    rng = random.Random(seed)
    journalling = start("journal_process.py", tmp_path, seed)
    assert journalling.stdout is not None
    lines = []
    for _ in range(6):
        lines += [journalling.stdout.readline() for _ in range(200)]
        writer = start("writer_process.py", tmp_path, rng.randrange(1, 12))
        writer.communicate()
        assert writer.returncode in (0, -signal.SIGKILL)
    lines += kill(journalling)
    drain_once(tmp_path, ledger)
    check(statuses(ledger), said([line for line in lines if line.strip()]))
