"""Texts that a model is judged on: windows of tokens, each of one kind.

The default is what a coding agent's prompts are made of here: chats about a manual, shown files,
tool definitions with the results of calls, as an engine shows them to the model, out of the bench's
prompts and real text of this machine (``padding.py``). Files given are cut as they come.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.wire.chat import decode_request, encode

from . import padding
from .workloads import BenchError, load

if TYPE_CHECKING:
    from agentspec.engine.showing import Showing
    from agentspec.engine.tokenizer import Tokenizer

KINDS = ("code", "chat", "tool")
_PROMPTS = 8
_CUT = 64
"""Padding ends a little before its aim, windows are all of one length: so more, then a cut."""


@dataclass(frozen=True, slots=True)
class Window:
    """A text of its own. kind: a workload, or the stem of the file that it is from."""

    kind: str
    tokens: tuple[int, ...]


class Texts:
    """Makes windows for one tokenizer. showing: requests as the served model would see them."""

    def __init__(self, tokenizer: Tokenizer, showing: Showing):
        self._tokenizer = tokenizer
        self._showing = showing

    def windows(self, count: int, tokens: int, files: list[Path]) -> list[Window]:
        """About ``count`` tokens in windows of ``tokens``, shared equally by kinds or files.

        Raises ``BenchError`` where a file is too short for its share.
        """
        kinds = len(files) or len(KINDS)
        each = max(1, round(count / tokens / kinds))
        if files:
            return [w for path in files for w in self._of_file(path, each, tokens)]
        return [self._padded(kind, i, tokens) for kind in KINDS for i in range(each)]

    def _padded(self, kind: str, number: int, tokens: int) -> Window:
        """Prompt ``number`` after as much of its own kind as fits; a seed for each."""
        body = load(kind, _PROMPTS)[number % _PROMPTS].body
        longer = tokens + _CUT
        body = padding.fitted(body, kind, lambda one: len(self._render(one)), longer, number)
        return Window(kind, tuple(self._render(body)[:tokens]))

    def _render(self, body: dict[str, Any]) -> list[int]:
        return self._showing.tokens(decode_request(encode({**body, "model": "any"})))

    def _of_file(self, path: Path, windows: int, tokens: int) -> Iterator[Window]:
        ids: list[int] = []
        for text in _texts(path):
            ids += self._tokenizer.encode(text)
            if len(ids) >= windows * tokens:
                break
        if len(ids) < tokens:
            raise BenchError(f"{path} has {len(ids)} tokens, a window needs {tokens}")
        kind = path.name.partition(".")[0]
        for start in range(0, min(len(ids) - tokens + 1, windows * tokens), tokens):
            yield Window(kind, tuple(ids[start : start + tokens]))


def _texts(path: Path) -> Iterator[str]:
    """The texts in a file: of JSON lines each one's prompt with its solution, else the line."""
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "rt", encoding="utf-8", errors="replace") as file:
        if ".jsonl" not in path.suffixes:
            yield file.read()
            return
        for line in file:
            row = json.loads(line)
            if {"prompt", "canonical_solution"} <= row.keys():
                yield row["prompt"] + row["canonical_solution"] + "\n"
            else:
                yield line
