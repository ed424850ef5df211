"""Answers of the target as token ids: what a draft learns from. No torch.

One JSON object a line of ``answers.jsonl``: {id, ids, prompt_tokens, finish_reason, text, body}.
The loss mask is a suffix: the tokens from ``prompt_tokens`` on. ``answers.json`` beside it says
which target answered, and the sums of the prompt files.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .errors import Mismatch, TrainError


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """ids: prompt and answer, the answer's end token included where there was one.

    body: the chat request's fields where it constrains the answer (tools, response_format), so that
    its masks can be had again; else None.
    """

    id: str
    ids: list[int]
    prompt_tokens: int
    finish_reason: str | None = None
    text: str = ""
    body: dict[str, Any] | None = None

    @property
    def answer_tokens(self) -> int:
        return len(self.ids) - self.prompt_tokens

    def cut(self, tokens: int) -> Sample:
        return replace(self, ids=self.ids[:tokens])


def write_json(path: Path, value: Any) -> None:
    """Replace a file whole: a reader sees the old one or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(path.suffix + ".part")
    draft.write_text(json.dumps(value, indent=1) + "\n")
    os.replace(draft, path)


def read_json(path: Path) -> Any:
    """Raises ``TrainError`` naming the file."""
    try:
        return json.loads(path.read_text())
    except FileNotFoundError:
        raise TrainError(f"{path} is missing: run the stage before this one") from None
    except ValueError as error:
        raise TrainError(f"{path} cannot be read: {error}") from None


class AnswerFile:
    """The growing file; a line that a killed run left half written is cut off."""

    def __init__(self, path: Path):
        self.path = path

    def open(self, target: dict[str, Any]) -> set[str]:
        """Prepare for appending. Returns the ids that are there. Raises ``Mismatch``, or
        ``TrainError`` naming a line that is no answer."""
        about = self.path.with_suffix(".json")
        if about.exists():
            kept = read_json(about)["target"]
            for name, value in target.items():
                if kept.get(name) != value:
                    raise Mismatch(
                        f"{self.path} holds answers of another target: {name} is "
                        f"{kept.get(name)!r}, not {value!r}"
                    )
        else:
            write_json(about, {"target": target})
        if not self.path.exists():
            return set()
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole != text:
            self.path.write_bytes(whole)
        return {sample.id for sample in self._samples()}

    def note_sampling(self, sampling: dict[str, Any]) -> None:
        """Remember how answers here are drawn. Raises ``Mismatch`` where that was otherwise."""
        path = self.path.with_suffix(".json")
        about = read_json(path)
        kept = about.setdefault("sampling", sampling)
        for name, value in sampling.items():
            if kept.get(name) != value:
                raise Mismatch(
                    f"{self.path} holds answers that were drawn with regenerate.{name} = "
                    f"{kept.get(name)!r}, not {value!r}: take another 'folder'"
                )
        write_json(path, about)

    def note_prompts(self, sha256: str) -> None:
        """Remember a file of prompts that answers here came from."""
        path = self.path.with_suffix(".json")
        about = read_json(path)
        known = about.setdefault("prompts_sha256", [])
        if sha256 not in known:
            known.append(sha256)
            write_json(path, about)

    def append(self, sample: Sample) -> None:
        line = {name: getattr(sample, name) for name in sample.__slots__}
        with self.path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")

    def read(self, *, min_tokens: int, most_tokens: int) -> Iterator[Sample]:
        """Samples cut to ``most_tokens`` with ``min_tokens`` of answer. Raises ``TrainError``.

        A last line that is half written is left out."""
        if not self.path.exists():
            raise TrainError(f"{self.path} is missing: run 'agentspec draft regenerate' first")
        for whole in self._samples():
            sample = whole.cut(most_tokens)
            if sample.answer_tokens >= min_tokens:
                yield sample

    def _samples(self) -> Iterator[Sample]:
        with self.path.open("rb") as stream:
            for number, line in enumerate(stream, start=1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield Sample(**json.loads(line))
                except (ValueError, TypeError) as error:
                    raise TrainError(f"{self.path}, line {number}: no answer: {error}") from None
