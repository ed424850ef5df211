"""Tools for ``llm --functions``, which brings none of its own for files."""

import pathlib
import subprocess


def read_file(path: str) -> str:
    """Read a file."""
    return pathlib.Path(path).read_text()


def edit_file(path: str, old_text: str, new_text: str) -> str:
    """Replace a text in a file."""
    file = pathlib.Path(path)
    file.write_text(file.read_text().replace(old_text, new_text))
    return "edited"


def bash(command: str) -> str:
    """Run a shell command."""
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    return f"exit status {done.returncode}\n{done.stdout}{done.stderr}"
