"""``agentspec draft regenerate``: the target's own answers to the prompts, as token ids.

A draft has to learn what its target says, not what somebody else wrote (DSpark paper, section 5;
DeepSpec, scripts/data). Answers are appended as they come; a second run asks what is missing.

Read next: ``asking.py`` (in process, over HTTP).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

from .asking import Asked, Endpoint, InProcess
from .config import DraftToml
from .curve import Progress
from .errors import TrainError
from .identity import file_sha256
from .prompts import read_prompts, read_traffic
from .samples import AnswerFile, Sample
from .target import Target

_SAMPLING = ("temperature", "top_p", "top_k", "max_tokens", "seed")


class Asker(Protocol):
    """Who answers. Order is free; a prompt that cannot be asked comes back as its reason."""

    def answers(self, asked: Iterable[Asked]) -> Iterator[Sample | str]: ...


def regenerate(toml: DraftToml, *, traffic: Path | None = None) -> dict[str, Any]:
    """Answer what isn't answered yet. Returns counts, and reasons of what was left out.

    traffic: an export of payloads in the place of ``regenerate.prompts``.
    Raises ``TrainError``, ``Mismatch`` where the answers there are another target's.
    """
    config = toml.regenerate
    path = _source(toml, traffic)
    prompts = read_prompts(path) if traffic is None else read_traffic(path)
    target = Target.open(toml)
    file = AnswerFile(toml.answers)
    done = file.open(target.answering)
    file.note_sampling({name: getattr(config, name) for name in _SAMPLING})
    file.note_prompts(file_sha256(path))
    asked = [
        Asked.of(prompt, number, config) for prompt in prompts for number in range(config.answers)
    ]
    todo = [one for one in asked if one.id not in done]
    counts: Counter[str] = Counter()
    refused: Counter[str] = Counter()
    progress = Progress()
    for answer in _asker(toml, target).answers(todo) if todo else ():
        counts["asked"] += 1
        if isinstance(answer, str):
            refused[answer] += 1
        else:
            file.append(answer)
            counts["answers"] += 1
            counts["tokens"] += answer.answer_tokens
        progress(
            f"regenerate: {counts['asked']}/{len(todo)}  {counts['tokens']:,} tokens",
            end=counts["asked"] == len(todo),
        )
    if todo and not counts["answers"] and not done:
        reason = next(iter(refused), "no answer came")
        raise TrainError(f"no prompt could be answered: {reason}")
    return {
        "prompts": len(prompts),
        "there before": len(asked) - len(todo),
        "answered": counts["answers"],
        "tokens": counts["tokens"],
        "left out": dict(refused),
    }


def _source(toml: DraftToml, traffic: Path | None) -> Path:
    if traffic is not None:
        return traffic
    if toml.regenerate.prompts is None:
        raise TrainError("regenerate.prompts must name a file (or pass --from-traffic FILE)")
    return toml.base / toml.regenerate.prompts


def _asker(toml: DraftToml, target: Target) -> Asker:
    if toml.regenerate.endpoint is None:
        return InProcess(target, toml.regenerate)
    return Endpoint(target, toml.regenerate)
