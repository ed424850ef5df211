"""The prompts of ``bench engine``: workloads of coding agents, each a JSON-lines file.

A line is ``{id, messages, tools?, tool_choice?, file?, replace?}``: a chat request without its
model. ``{file}`` in a message stands for the text of ``files/<file>``, beside the JSON lines;
``replace`` holds [old, new] pairs that make of that file the right answer.

``edit-replay`` is no file of its own: the edits of ``edit`` (or of recorded agent runs), their
true answer written in place of what the model would say.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.settings import SettingsError

from . import trajectories

WORKLOADS = ("tool", "edit", "code", "chat")
REPLAY = "edit-replay"
PROMPTS = Path(__file__).parent / "prompts"


class BenchError(SettingsError):
    """The bench was asked for what it does not have; the message says what there is."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """One chat request. body: its JSON fields, the model and the sampling left out.

    answer: what is to be written, whatever the model would say; None: the model is asked.
    """

    id: str
    workload: str
    body: dict[str, Any]
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """A prompt as every engine gets it: the same token ids, greedy, the same output limit.

    context: prompt tokens that it was brought to; 0: as it is. script: the answer's tokens where
    they are prescribed, its end included. free: the grammar is taken away after planning.
    """

    id: str
    workload: str
    tokens: tuple[int, ...]
    max_tokens: int
    context: int = 0
    script: tuple[int, ...] = ()
    free: bool = False


@dataclass(slots=True, kw_only=True)
class Run:
    """One answer, measured.

    tok_s: decode tokens a second, after the first token; None where fewer than two came.
    accepted_length: tokens a target pass, its bonus token included; 1.0 in plain decoding.
    looped: its text ran into repetition; it counts for no figure. exact: what the engine says of
    itself; None where it says nothing. started_s, ended_s: ``time.perf_counter()`` here.
    """

    case: str
    workload: str
    prompt_tokens: int = 0
    out_tokens: int
    tok_s: float | None
    prefill_tok_s: float
    accepted_length: float
    looped: bool = False
    text: str | None = None
    exact: bool | None = None
    started_s: float = 0.0
    ended_s: float = 0.0


def _fill(message: dict[str, Any], text: str) -> dict[str, Any]:
    return message | {"content": message["content"].replace("{file}", text)}


def _edited(body: dict[str, Any], text: str, changes: list[list[str]]) -> str:
    """The file after its changes, as the prompt asks for it: in one code block of its kind."""
    for old, new in changes:
        assert old in text, f"nothing to replace: {old}"
        text = text.replace(old, new)
    language = body["messages"][-1]["content"].partition("```")[2].partition("\n")[0]
    return f"```{language}\n{text}```"


def _read(workload: str, line: str, files: Path) -> Prompt:
    body = json.loads(line)
    name, file, changes = (body.pop(key, None) for key in ("id", "file", "replace"))
    answer = body.pop("answer", None)
    if file is not None:
        text = (files / file).read_text()
        if workload == REPLAY and changes:
            answer = _edited(body, text, changes)
        body["messages"] = [_fill(message, text) for message in body["messages"]]
    return Prompt(name, workload, body, answer if workload == REPLAY else None)


def everything(workload: str, folder: Path | None) -> list[Prompt]:
    """Every prompt of a workload: of ``folder`` where it has some, else the package's."""
    if workload == REPLAY and folder is not None:
        recorded = trajectories.load(folder)
        if recorded:
            return [Prompt(r.id, REPLAY, {"messages": r.messages}, r.answer) for r in recorded]
    name = "edit.jsonl" if workload == REPLAY else f"{workload}.jsonl"
    for base in (folder, PROMPTS):
        if base is not None and (base / name).exists():
            lines = (base / name).read_text().splitlines()
            prompts = [_read(workload, line, base / "files") for line in lines]
            return [p for p in prompts if p.answer is not None or workload != REPLAY]
    raise BenchError(f"no workload '{workload}' in {folder or PROMPTS}")


def load(workload: str, count: int, folder: Path | None = None, seed: int = 0) -> list[Prompt]:
    """``count`` different prompts drawn with ``seed``; ``BenchError`` where there are fewer."""
    prompts = everything(workload, folder)
    if count > len(prompts):
        raise BenchError(f"workload '{workload}' has {len(prompts)} prompts; --n {count} asks more")
    return random.Random(seed).sample(prompts, count)
