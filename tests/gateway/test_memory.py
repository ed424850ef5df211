"""The memory behind ``previous_response_id``: bounded in time and size, apart by scope."""

from __future__ import annotations

from agentspec.gateway.memory import Memory


class Ticks:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_scope_sees_its_own_only():
    memory = Memory(Ticks())
    memory.put("a", "x", b"1")
    assert memory.get("a", "x") == b"1"
    assert memory.get("b", "x") is None


def test_time_ends_what_is_kept():
    clock = Ticks()
    memory = Memory(clock, keep_s=10)
    memory.put("a", "x", b"1")
    clock.now_s = 9.9
    assert memory.get("a", "x") == b"1"
    clock.now_s = 10
    assert memory.get("a", "x") is None
    memory.put("a", "y", b"2")
    assert memory.size_bytes < 300  # what was over is gone


def test_the_oldest_makes_room():
    memory = Memory(Ticks(), max_bytes=2000)
    for name in "abcdef":
        memory.put("s", name, bytes(400))
        assert memory.size_bytes <= 2000
    assert [memory.get("s", name) is not None for name in "abcdef"] == [False] * 3 + [True] * 3
    memory.put("s", "f", bytes(10))
    assert memory.get("s", "f") == bytes(10)
    memory.put("s", "huge", bytes(5000))
    assert memory.get("s", "huge") is None and memory.get("s", "e") is not None
