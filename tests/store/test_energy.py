"""Energy from counters: differences between readings; unknown without them."""

from __future__ import annotations

import sys
import threading
import types
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select

from agentspec.store import energy
from agentspec.store.energy import Energy
from agentspec.store.energy_schema import energy_reading
from agentspec.store.window import Window


def note(engine: Engine, *readings: tuple[str, int, int]) -> None:
    rows: list[dict[str, Any]] = [
        dict(zip(("device", "ts_ms", "total_mj"), r, strict=True)) for r in readings
    ]
    with engine.begin() as connection:
        connection.execute(insert(energy_reading), rows)


def ask(engine: Engine, since_ms: int = 0, until_ms: int = 10**6) -> Energy:
    with engine.connect() as connection:
        return energy.energy(connection, Window(since_ms, until_ms))


def test_without_two_readings_it_is_unknown(engine: Engine):
    assert ask(engine) == Energy(0, None, 0)
    note(engine, ("a", 1000, 5), ("b", 1000, 7))
    assert ask(engine).mj is None


def test_differences_of_all_devices(engine: Engine):
    note(engine, ("a", 1000, 5_000), ("a", 2000, 9_000), ("a", 3000, 10_000))
    note(engine, ("b", 1000, 1), ("b", 2500, 101), ("b", 10**6, 999_999))
    assert ask(engine) == Energy(2, 5_000 + 100, 1500)
    assert ask(engine, 1500, 3001) == Energy(1, 1_000, 1000)


def test_a_counter_that_started_anew_counts_from_zero(engine: Engine):
    note(engine, ("a", 1000, 5_000), ("a", 2000, 6_000), ("a", 3000, 30), ("a", 4000, 70))
    assert ask(engine).mj == 1_000 + 30 + 40


def test_readings_are_noted_from_a_thread(engine: Engine, url: str):
    counts = iter(range(100, 200))
    third = threading.Event()

    def counters() -> dict[str, int]:
        count = next(counts)
        if count == 102:
            third.set()
        return {"GPU-1": count}

    with energy.reading(url, counters, every_s=0.02):
        assert third.wait(60)
    with engine.connect() as connection:
        found = connection.execute(select(energy_reading).order_by(energy_reading.c.ts_ms)).all()
    assert [row.total_mj for row in found] == list(range(100, 100 + len(found)))
    assert len(found) >= 2 and {row.device for row in found} == {"GPU-1"}


def test_nothing_is_noted_where_nothing_can_be_read(url: str, engine: Engine):
    with energy.reading(url, None):
        pass
    assert ask(engine) == Energy()


class FakeNvml(types.ModuleType):
    """What we use of pynvml. broken: the driver is not there."""

    class NVMLError(Exception):
        pass

    def __init__(self, broken: bool = False, devices: int = 2):
        super().__init__("pynvml")
        self.broken, self.devices = broken, devices

    def nvmlInit(self) -> None:
        if self.broken:
            raise self.NVMLError("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return self.devices

    def nvmlDeviceGetHandleByIndex(self, at: int) -> int:
        return at

    def nvmlDeviceGetUUID(self, handle: int) -> str | bytes:
        return f"GPU-{handle}" if handle else b"GPU-0"

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: int) -> int:
        return 1000 + handle


@pytest.mark.parametrize("module", [None, FakeNvml(broken=True), FakeNvml(devices=0)])
def test_no_gpu_no_readings(module: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", module)
    assert energy.nvml() is None


def test_readings_by_device(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "pynvml", FakeNvml())
    read = energy.nvml()
    assert read is not None and read() == {"GPU-0": 1000, "GPU-1": 1001}
