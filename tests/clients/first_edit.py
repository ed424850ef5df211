"""One connected agent is asked for an edit, for ``scripts/first_edit.sh``.

``python -m tests.clients.first_edit CLIENT FOLDER SECONDS COMMAND``: FOLDER holds ``home``, where
connect wrote, and ``project``; COMMAND is what connect said to type. Exits 1 without an edit.
"""

from __future__ import annotations

import sys
from pathlib import Path

from . import script
from .agents import AGENTS
from .sandbox import Sandbox


def main(client: str, folder: str, limit_s: str, command: str) -> int:
    sandbox = Sandbox(Path(folder) / "home", Path(folder) / "project")
    for name, text in script.FILES.items():
        (sandbox.work / name).write_text(text)
    before = (sandbox.work / "calc.py").read_bytes()
    ran = sandbox.run(AGENTS[client], command, script.TASK, float(limit_s))
    edited = (sandbox.work / "calc.py").read_bytes() != before
    told = "edited" if edited else f"did not edit (its last words: {ran.output[-300:]!r})"
    sys.stdout.write(f"{client} {told} calc.py\n")
    return 0 if edited else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
