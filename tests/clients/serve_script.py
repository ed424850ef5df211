"""A gateway before the scripted backend, in the foreground, for ``scripts/first_edit.sh``.

``python -m tests.clients.serve_script PORT PROJECT CLIENT``
"""

from __future__ import annotations

import signal
import sys
import tempfile
from pathlib import Path

from .agents import AGENTS
from .backend import running
from .serving import gateway_before


def main(port: str, project: str, client: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with running() as backend, tempfile.TemporaryDirectory() as folder:
        backend.begin(Path(project), text_edits=AGENTS[client].text_edits)
        with gateway_before(backend.url, Path(folder), int(port)):
            signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
