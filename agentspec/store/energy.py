"""Energy of this machine's GPUs, from the counter that their hardware keeps (NVML).

Needs the package ``nvidia-ml-py`` and an NVIDIA driver; without them energy stays unknown. A
nameplate's watts are never taken for a reading.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Any

from sqlalchemy import Connection, insert, select
from sqlalchemy.exc import SQLAlchemyError

from .database import connect
from .energy_schema import energy_reading
from .window import Window

log = logging.getLogger(__name__)

EVERY_S = 60.0


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy between the first and the last reading of a window, all devices together.

    mj: millijoules, None where there are not two readings. covered_ms: time between them, of the
    device with the least.
    """

    devices: int = 0
    mj: int | None = None
    covered_ms: int = 0


def energy(connection: Connection, window: Window) -> Energy:
    """What was used in a window. A counter that starts anew (a driver was loaded) counts from 0."""
    c = energy_reading.c
    query = (
        select(c.device, c.ts_ms, c.total_mj)
        .where(c.ts_ms >= window.since_ms, c.ts_ms < window.until_ms)
        .order_by(c.device, c.ts_ms)
    )
    used, covered = [], []
    for _, readings in groupby(connection.execute(query), key=lambda row: row.device):
        rows = list(readings)
        if len(rows) > 1:
            steps = [(a.total_mj, b.total_mj) for a, b in pairwise(rows)]
            used.append(sum(b - a if b >= a else b for a, b in steps))
            covered.append(rows[-1].ts_ms - rows[0].ts_ms)
    return Energy(len(used), sum(used), min(covered)) if used else Energy()


def nvml() -> Callable[[], Mapping[str, int]] | None:
    """What reads the counters, millijoules by device; None where there are none to read."""
    try:
        import pynvml  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
        devices = {}
        for at in range(pynvml.nvmlDeviceGetCount()):
            handle = pynvml.nvmlDeviceGetHandleByIndex(at)
            pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)  # older GPUs have no counter
            devices[_text(pynvml.nvmlDeviceGetUUID(handle))] = handle
    except pynvml.NVMLError as error:
        log.info("no energy readings: %s", error)
        return None
    if not devices:
        return None
    read = pynvml.nvmlDeviceGetTotalEnergyConsumption
    return lambda: {name: int(read(handle)) for name, handle in devices.items()}


@contextmanager
def reading(
    url: str, read: Callable[[], Mapping[str, int]] | None, every_s: float = EVERY_S
) -> Iterator[None]:
    """Note what ``read`` reads in the database at ``url``, from a thread of its own."""
    if read is None:
        yield
        return
    stop = threading.Event()
    thread = threading.Thread(target=_follow, args=(url, read, every_s, stop), name="energy")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _follow(
    url: str, read: Callable[[], Mapping[str, int]], every_s: float, stop: threading.Event
) -> None:
    engine = connect(url)
    try:
        while True:
            rows = _rows(read())
            try:
                with engine.begin() as connection:
                    connection.execute(insert(energy_reading), rows)
            except SQLAlchemyError as error:
                log.warning("energy was not noted: %s", getattr(error, "orig", None) or error)
            if stop.wait(every_s):
                return
    finally:
        engine.dispose()


def _rows(read: Mapping[str, int]) -> list[dict[str, Any]]:
    now_ms = time.time_ns() // 1_000_000
    return [{"device": name, "ts_ms": now_ms, "total_mj": mj} for name, mj in read.items()]


def _text(name: str | bytes) -> str:
    return name.decode() if isinstance(name, bytes) else name
