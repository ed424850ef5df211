"""The grammar bench goes on where an engine hangs or dies."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from agentspec.bench import grammar
from agentspec.bench.grammar import Case, Worker, failures, summary

ENGINE = """
import os, sys
sys.path.insert(0, {folder!r})
import grammar_worker as worker

class Engine(worker.Peer):
    def __init__(self, vocabulary): ...
    def compile(self, schema):
        while schema == "hangs":
            pass
        if schema == "dies":
            os.abort()
        if schema == "refused":
            raise worker.Refused("not this one")
        return schema
    def start(self, compiled): return None
    def advance(self, session, token): return True
    def ended(self, session): return True
    def mask(self, session, row): ...

class Vocabulary:
    size = 40
    def __init__(self, folder): ...
    def encode(self, text): return []

worker.ENGINES["made"], worker.Vocabulary = Engine, Vocabulary
worker.main()
"""


@pytest.fixture
def worker(tmp_path, monkeypatch):
    script = tmp_path / "made_engine.py"
    script.write_text(ENGINE.format(folder=str(grammar.WORKER.parent)))
    monkeypatch.setattr(grammar, "WORKER", script)
    worker = Worker(sys.executable, "made", tmp_path, 60.0)
    yield worker
    worker.close()


def case(schema: str) -> Case:
    return Case(schema, schema, [("1", True), ("2", False)])


def test_what_hangs_or_dies_costs_its_own_case_only(worker):
    outcomes = [worker.judge(case("fine"))]
    process = worker._process
    worker._limit_s = 0.2
    outcomes.append(worker.judge(case("hangs")))
    worker._limit_s = 60.0
    outcomes += [worker.judge(case(name)) for name in ("fine", "dies", "refused", "fine")]
    assert worker._process is process
    assert [o.timeout for o in outcomes] == [False, True, False, True, False, False]
    assert [o.verdicts for o in outcomes] == [[True, True], [], [True, True], [], [], [True, True]]
    row = summary("made", outcomes)
    assert (row["refused"], row["timeouts"], row["invalid_accepted"]) == (3, 2, 3)
    assert len(failures("made", outcomes)["cases"]) == 6


def test_an_engine_that_cannot_start_says_why(tmp_path, monkeypatch):
    script = Path(tmp_path / "broken_engine.py")
    script.write_text("raise SystemExit('no such engine here')")
    monkeypatch.setattr(grammar, "WORKER", script)
    with pytest.raises(ChildProcessError, match="no such engine here"):
        Worker(sys.executable, "broken", tmp_path, 1.0).judge(case("fine"))
