"""A writer that kills itself at its Nth step: python writer_process.py DIR N.

A step is an SQL statement, a commit (before and after it) or the deletion of a journal.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from sqlalchemy import event

from agentspec.store.database import connect
from agentspec.store.writer import drain_once


def main(directory: Path, steps: int) -> None:
    left = [steps]

    def step(*_: object) -> None:
        left[0] -= 1
        if not left[0]:
            os.kill(os.getpid(), signal.SIGKILL)

    engine = connect(f"sqlite:///{directory / 'agentspec.db'}")
    event.listen(engine, "before_cursor_execute", step)
    event.listen(engine, "after_cursor_execute", step)
    event.listen(engine, "commit", step)
    event.listen(engine.pool, "checkin", step)  # after a commit
    sys.addaudithook(lambda name, _: step() if name == "os.remove" else None)
    drain_once(directory, engine)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
