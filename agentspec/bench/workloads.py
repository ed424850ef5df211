"""The prompts of ``bench engine``: four workloads of coding agents, each a JSON-lines file.

A line is ``{id, messages, tools?, tool_choice?, file?}``: a chat request without its model.
``{file}`` in a message stands for the text of ``prompts/files/<file>``, beside the JSON lines.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.settings import SettingsError

WORKLOADS = ("tool", "edit", "code", "chat")
PROMPTS = Path(__file__).parent / "prompts"


class BenchError(SettingsError):
    """The bench was asked for what it does not have; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One chat request. body: its JSON fields, the model and the sampling left out."""

    id: str
    workload: str
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt as every engine gets it: the same token ids, greedy, the same output limit."""

    id: str
    workload: str
    tokens: tuple[int, ...]
    max_tokens: int


@dataclass(slots=True, kw_only=True)
class Run:
    """One answer, measured.

    tok_s: decode tokens a second, after the first token; None where fewer than two came.
    accepted_length: tokens a target pass, its bonus token included; 1.0 in plain decoding.
    looped: its text ran into repetition; it counts for no figure. exact: what the engine says of
    itself; None where it says nothing.
    """

    case: str
    workload: str
    out_tokens: int
    tok_s: float | None
    prefill_tok_s: float
    accepted_length: float
    looped: bool = False
    text: str | None = None
    exact: bool | None = None


def _fill(message: dict[str, Any], text: str) -> dict[str, Any]:
    return message | {"content": message["content"].replace("{file}", text)}


def load(workload: str, count: int, folder: Path | None = None, seed: int = 0) -> list[Prompt]:
    """``count`` different prompts drawn with ``seed``; ``BenchError`` where there are fewer."""
    base = folder or PROMPTS
    path = base / f"{workload}.jsonl"
    if not path.exists():
        raise BenchError(f"no workload '{workload}' in {base}")
    prompts = []
    for line in path.read_text().splitlines():
        body = json.loads(line)
        name, file = body.pop("id"), body.pop("file", None)
        if file is not None:
            text = (base / "files" / file).read_text()
            body["messages"] = [_fill(message, text) for message in body["messages"]]
        prompts.append(Prompt(name, workload, body))
    if count > len(prompts):
        raise BenchError(f"workload '{workload}' has {len(prompts)} prompts; --n {count} asks more")
    return random.Random(seed).sample(prompts, count)
