"""Prompts that are judged on must not have been trained on: shared runs of words, by hash.

A run is 12 words of what a user says, lower case, without punctuation; a shorter text is one run.
System prompts and tools are left out: every agent's requests repeat those of others. The hashes of
a training set, 8 bytes each, may be kept as a file of their own (``.runs``) without its texts.
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
RUNS = ".runs"
_HASH_BYTES = 8
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
    return {_hash(" ".join(words[i : i + RUN_WORDS])) for i in range(count)}


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_HASH_BYTES]


def trained_runs(paths: Iterable[Path]) -> set[bytes]:
    """Of JSON lines with a chat request each, as ``agentspec draft regenerate`` reads them, and of
    files that ``write_runs`` wrote. Raises ``OSError`` or ``ValueError``.
    """
    found: set[bytes] = set()
    for path in paths:
        if path.suffix == RUNS:
            found |= _kept(path.read_bytes())
            continue
        found |= runs_of(map(json.loads, path.read_text().splitlines()))
    return found


def runs_of(bodies: Iterable[dict[str, Any]]) -> set[bytes]:
    """All that the users of these chat requests say."""
    return {run for body in bodies for text in said(body) for run in runs(text)}


def write_runs(path: Path, trained: set[bytes]) -> None:
    """Ascending, one behind the other."""
    path.write_bytes(b"".join(sorted(trained)))


def _kept(data: bytes) -> set[bytes]:
    if len(data) % _HASH_BYTES:
        raise ValueError("not a file of hashes")
    return {data[i : i + _HASH_BYTES] for i in range(0, len(data), _HASH_BYTES)}


def overlapping(prompts: Iterable[tuple[str, dict[str, Any]]], trained: set[bytes]) -> Seq[str]:
    """The ids of (id, body) pairs that share a run with what was trained on."""
    return [
        id for id, body in prompts if any(not trained.isdisjoint(runs(text)) for text in said(body))
    ]
