"""A process that journals requests at a steady pace, as a gateway worker does.

    python -m agentspec.bench.store_load DIR SECONDS PER_SECOND SEED

At its end it prints {"written", "failed", "p95_ms"}: requests journalled, requests whose
journalling failed, and the time that both records of one took.
"""

from __future__ import annotations

import json
import random
import sys
import time
from pathlib import Path

from agentspec.store.errors import JournalError
from agentspec.store.journal import Journal
from agentspec.store.record import OpenRecord

from .stats import percentile
from .synthetic import record


def main(directory: Path, seconds: float, per_second: float, seed: int) -> None:
    rng = random.Random(seed)
    began_s = time.monotonic()
    times_ms, failed = [], 0
    with Journal(directory) as journal:
        for number in range(int(seconds * per_second)):
            pause_s = began_s + number / per_second - time.monotonic()
            if pause_s > 0:
                time.sleep(pause_s)
            done = record(rng, number + seed * 10**9, time.time_ns() // 1_000_000)
            at_s = time.perf_counter()
            try:
                journal.open(OpenRecord(id=done.id, ts_ms=done.ts_ms))
                journal.close(done)
            except JournalError:
                failed += 1
            times_ms.append(1000 * (time.perf_counter() - at_s))
    told = {"written": len(times_ms) - failed, "failed": failed}
    sys.stdout.write(json.dumps(told | {"p95_ms": percentile(times_ms, 95)}) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]))
