"""What every bench file holds beside its results: machine, commit, versions, command."""

from __future__ import annotations

import importlib.metadata as metadata
import os
import platform
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

from agentspec import jsontext

PACKAGES = ("agentspec", "torch", "triton", "llguidance", "fastapi", "aiohttp", "sqlalchemy")


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
    except (ValueError, OSError):
        return None


def machine() -> dict[str, Any]:
    return {
        "cpu": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": _memory_gib(),
        "os": platform.platform(),
        "load_1m": round(os.getloadavg()[0], 2),
    }


def commit() -> str | None:
    """The checkout's commit, "+" behind it when it has changes; None of an installed wheel."""
    root = Path(__file__).parents[2]
    if not (root / ".git").exists():
        return None
    git = ["git", "-C", str(root)]
    head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
    if head.returncode:
        return None
    diff = subprocess.run([*git, "diff", "--quiet", "HEAD"], check=False)
    return head.stdout.strip() + ("+" if diff.returncode else "")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def build(results: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The whole document of one bench; ``results`` has the shape that outlasts refactors."""
    return {
        "machine": machine(),
        "commit": commit(),
        "versions": versions() | more.pop("versions", {}),
        "command": shlex.join(["agentspec", *sys.argv[1:]]),
        "finished_unix_s": int(time.time()),
        "results": results,
        **more,
    }


def write(path: str | Path, document: dict[str, Any]) -> None:
    Path(path).write_text(jsontext.dumps(document, indent=1) + "\n")


def progress(text: str) -> None:
    """One line on standard error; results go to standard output."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def cell(value: Any) -> str:
    """A value of a table; "-" for None."""
    if isinstance(value, float):
        return f"{value:.4f}" if 0 < abs(value) < 1 else f"{value:.2f}"
    return "-" if value is None else str(value)


def table(rows: Seq[dict[str, Any]], columns: Seq[str]) -> str:
    """Rows as aligned text."""
    cells = [list(columns), *([cell(row.get(c)) for c in columns] for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(columns))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in cells)
    return "\n".join(line.rstrip() for line in lines) + "\n"
