"""Prompts that are judged on must not have been trained on: shared runs of words, by hash.

A run is 12 words of what a user says, lower case, without punctuation; a shorter text is one run.
System prompts and tools are left out: every agent's requests repeat those of others.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as Seq
from pathlib import Path
from typing import Any

RUN_WORDS = 12
_WORD = re.compile(r"\w+")


def said(body: dict[str, Any]) -> Iterator[str]:
    """The texts of the users' messages of a chat request."""
    for message in body["messages"]:
        content = message.get("content")
        if message.get("role") != "user" or content is None:
            continue
        yield content if isinstance(content, str) else json.dumps(content)


def runs(text: str) -> set[bytes]:
    """Hashes of all runs of a text."""
    words = _WORD.findall(text.lower())
    count = max(len(words) - RUN_WORDS + 1, 1)
    return {
        hashlib.sha256(" ".join(words[i : i + RUN_WORDS]).encode()).digest() for i in range(count)
    }


def trained_runs(paths: Iterable[Path]) -> set[bytes]:
    """Of JSON lines with a chat request each, as ``agentspec draft regenerate`` reads them.

    Raises ``OSError`` or ``ValueError``.
    """
    found: set[bytes] = set()
    for path in paths:
        for line in path.read_text().splitlines():
            for text in said(json.loads(line)):
                found |= runs(text)
    return found


def overlapping(prompts: Iterable[tuple[str, dict[str, Any]]], trained: set[bytes]) -> Seq[str]:
    """The ids of (id, body) pairs that share a run with what was trained on."""
    return [
        id for id, body in prompts if any(not trained.isdisjoint(runs(text)) for text in said(body))
    ]
