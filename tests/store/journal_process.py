"""A process that journals requests until it is killed: python journal_process.py DIR SEED.

On its standard output it says, before each write, what it is going to write, and after it, that it
has: ``open ID``, ``opened ID``, ``close ID``, ``closed ID``. Each line is one unbuffered write.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

from agentspec.store.journal import Journal
from agentspec.store.record import OpenRecord, RequestRecord


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def main(directory: Path, seed: int) -> None:
    rng = random.Random(seed)
    journal = Journal(directory, rotate_bytes=2000)
    in_flight: list[str] = []
    for number in range(1_000_000):
        if not in_flight or rng.random() < 0.5:
            name = f"{seed}-{number}"
            say("open", name)
            journal.open(OpenRecord(id=name, ts_ms=number, model="m"))
            say("opened", name)
            in_flight.append(name)
        else:
            name = in_flight.pop(rng.randrange(len(in_flight)))
            say("close", name)
            journal.close(RequestRecord(id=name, ts_ms=number, model="m", out_tok=number))
            say("closed", name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
