"""Recorded runs of SWE-agent: the edits in them, each with all that the model had before it.

A file (``.traj``, ``.traj.gz``) is JSON with ``history``: messages ``{role, content, action?,
tool_calls?}`` (SWE-agent's trajectory format).
"""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any, NamedTuple

_EDIT = re.compile(r"(edit|insert|str_replace|str_replace_editor)\b")


class Recorded(NamedTuple):
    """One edit. messages: what came before it, text only; answer: what the model wrote."""

    id: str
    messages: list[dict[str, str]]
    answer: str


def load(folder: Path) -> list[Recorded]:
    """All edits of the runs in ``folder``, in the order of the files' names."""
    found = []
    files = sorted([*folder.glob("*.traj"), *folder.glob("*.traj.gz")])
    for number, path in enumerate(files):
        opener = gzip.open if path.suffix == ".gz" else open
        with opener(path, "rt") as file:
            history = json.load(file).get("history") or []
        found += _edits(history, number)
    return found


def _edits(history: list[dict[str, Any]], number: int) -> list[Recorded]:
    found, before = [], []
    for message in history:
        text, action = _text(message), str(message.get("action") or "")
        if message.get("role") == "assistant" and _EDIT.match(action):
            if action.strip() not in text:
                text = f"{text}\n\n```\n{action.strip()}\n```"
            if before:
                found.append(Recorded(f"run-{number}-{len(found)}", list(before), text))
        role = str(message.get("role"))
        before.append({"role": "user" if role == "tool" else role, "content": text})
    return found


def _text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return str(content)
