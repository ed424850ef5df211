"""Real text that every machine with Python has: its library's sources and its manual."""

from __future__ import annotations

import random
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_LEAST_CHARS = 2_000


class Document(NamedTuple):
    title: str
    text: str


def sources(seed: int) -> Iterator[Document]:
    """Modules of the standard library, in an order that ``seed`` draws; ends after the last."""
    paths = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-z]*.py"))
    random.Random(seed).shuffle(paths)
    for path in paths:
        text = path.read_text(encoding="utf-8", errors="replace")
        if len(text) >= _LEAST_CHARS:
            yield Document(f"lib/{path.name}", text)


def manual(seed: int) -> Iterator[Document]:
    """Chapters of the language's manual as ``help()`` shows them, in an order drawn by ``seed``."""
    from pydoc_data.topics import topics

    titles = sorted(title for title, text in topics.items() if len(text) >= _LEAST_CHARS)
    random.Random(seed).shuffle(titles)
    for title in titles:
        yield Document(title, topics[title])
