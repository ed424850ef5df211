"""Kept answers in both databases: apart by scope, replaced, over after their time, pruned."""

from __future__ import annotations

from sqlalchemy import Engine, func, select

from agentspec.store.answers import AnswerStore
from agentspec.store.schema import kept_answer


class Now:
    ms = 1000

    def __call__(self) -> int:
        return self.ms


def rows(engine: Engine) -> int:
    with engine.connect() as connection:
        return connection.execute(select(func.count()).select_from(kept_answer)).scalar_one()


def test_scopes_names_and_time(engine: Engine):
    now = Now()
    store, other = (AnswerStore(engine, now, keep_ms=100) for _ in range(2))
    store.put("a", {"x": b"1", "y": b"\x00\xff"})
    assert other.get("a", ["x", "y", "z"]) == {"x": b"1", "y": b"\x00\xff"}
    assert other.get("b", ["x"]) == {}
    other.put("a", {"x": b"2"})
    assert store.get("a", ["x"]) == {"x": b"2"}
    store.drop("b", ["x"])
    store.drop("a", ["y"])
    assert other.get("a", ["x", "y"]) == {"x": b"2"}
    now.ms = 1100
    assert other.get("a", ["x"]) == {}


def test_what_is_over_goes_in_batches(engine: Engine):
    now = Now()
    store = AnswerStore(engine, now, keep_ms=100)
    store.put("a", {f"n{i}": b"" for i in range(7)})
    now.ms = 1050
    store.put("a", {"young": b"1"})
    now.ms = 1120
    assert [store.prune(3) for _ in range(4)] == [3, 3, 1, 0]
    assert store.get("a", ["young"]) == {"young": b"1"}
    now.ms = 60_000
    store.put("b", {"new": b""})  # deletes what is over on the way
    assert rows(engine) == 1
