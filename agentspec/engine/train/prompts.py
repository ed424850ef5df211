"""What the target is asked: a file of prompts, or an export of what people asked it. No torch.

A prompts file has one JSON object a line: a chat request (messages; tools, tool_choice,
response_format where wanted), and perhaps an ``id``. An export of traffic has one payload a line,
as the ledger keeps them: ``{"request_id", "kind": "request", "text": BODY}``; answers in it are
left out, since a draft has to learn from the target that it will serve.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import TrainError

_KEPT = ("messages", "tools", "tool_choice", "response_format", "parallel_tool_calls")


@dataclass(frozen=True, slots=True)
class Prompt:
    """body: the fields of a chat request that decide what is asked; no model, no sampling."""

    id: str
    body: dict[str, Any]


def read_prompts(path: Path) -> list[Prompt]:
    """Prompts in order, repeated ones once. Raises ``TrainError`` naming the line."""
    found: dict[str, Prompt] = {}
    for number, line in _objects(path):
        prompt = _prompt(line, line.get("id"))
        if prompt is None:
            raise TrainError(f"{path}, line {number}: 'messages' must be a list with an entry")
        if prompt.id in found and found[prompt.id].body != prompt.body:
            raise TrainError(f"{path}, line {number}: the id '{prompt.id}' is there already")
        found[prompt.id] = prompt
    return _some(found, path)


def read_traffic(path: Path) -> list[Prompt]:
    """The chat requests of an export; other bodies are left out. Raises ``TrainError``."""
    found: dict[str, Prompt] = {}
    for number, line in _objects(path):
        if line.get("kind", "request") != "request":
            continue
        try:
            body = json.loads(line["text"])
        except (KeyError, TypeError, ValueError):
            raise TrainError(f"{path}, line {number}: 'text' is no JSON body") from None
        prompt = _prompt(body, None) if isinstance(body, dict) else None
        if prompt is not None:
            found[prompt.id] = prompt
    return _some(found, path)


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with path.open("rb") as stream:
        for number, text in enumerate(stream, start=1):
            if not text.strip():
                continue
            try:
                line = json.loads(text)
            except ValueError as error:
                raise TrainError(f"{path}, line {number}: {error}") from None
            if not isinstance(line, dict):
                raise TrainError(f"{path}, line {number}: not a JSON object")
            yield number, line


def _prompt(line: dict[str, Any], id: Any) -> Prompt | None:
    messages = line.get("messages")
    if not isinstance(messages, list) or not messages:
        return None
    body = {name: line[name] for name in _KEPT if line.get(name) is not None}
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]
    return Prompt(digest if id is None else str(id), body)


def _some(found: dict[str, Prompt], path: Path) -> list[Prompt]:
    if not found:
        raise TrainError(f"{path} holds no prompt")
    return list(found.values())
