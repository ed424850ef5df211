"""The part of ``draft eval`` that generates: the draft in our engine, greedy, and plain decoding.

Read next: ``agentspec/engine/draft/load.py`` (the drafter).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from agentspec.engine.build import build
from agentspec.engine.request import GenerationRequest, Output
from agentspec.engine.sampling import SamplingParams
from agentspec.settings_drafts import DraftSettings
from agentspec.wire.chat import decode_request, encode

from .config import DraftToml
from .curve import Progress
from .data import read_samples
from .feature_cache import Entry
from .samples import Sample
from .teacher import Opened
from .trainer import EXPORT

if TYPE_CHECKING:
    from agentspec.engine.build import Built


@dataclass(slots=True)
class _Run:
    """All samples once, one after the other."""

    texts: list[str] = field(default_factory=list)
    tokens: int = 0
    steps: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0

    def told(self) -> dict[str, Any]:
        return {
            "accepted_length": round(1 + self.accepted / max(self.steps, 1), 4),
            "steps": self.steps,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "tokens": self.tokens,
            "tok_s": round(self.tokens / max(self.seconds, 1e-9), 1),
        }


def generate(toml: DraftToml, opened: Opened, entries: Sequence[Entry]) -> dict[str, Any]:
    """Answer the entries' prompts with the draft and without, the grammar of each applied.

    Accepted length is of the verifications that the engine chose to make, forced tokens apart;
    seconds are of whole requests, prompts read included. Raises what loading a draft raises.
    """
    target = opened.target
    target.settings.draft_sources = []
    built = build(target.settings)
    folder = str(toml.run / EXPORT)
    drafter = built.drafts.read(DraftSettings(path=folder))
    built.drafts.take(drafter, folder)
    wanted = {entry.id for entry in entries}
    samples = [sample for sample in read_samples(toml, target) if sample.id in wanted]
    progress = Progress()
    results = {}
    for name, sources in (("plain", ()), ("draft", (drafter.name,))):
        run = _Run()
        for number, sample in enumerate(samples, start=1):
            _answer(built, _request(built, sample, sources), run)
            progress(f"{name}: {number}/{len(samples)}", end=number == len(samples))
        results[name] = run
    same = sum(a == b for a, b in zip(results["plain"].texts, results["draft"].texts, strict=True))
    return {name: run.told() for name, run in results.items()} | {
        "same_text": f"{same}/{len(samples)}"
    }


def _request(built: Built, sample: Sample, sources: tuple[str, ...]) -> GenerationRequest:
    """The sample's prompt, greedy, under its grammar, as long as its answer was."""
    planner = built.planner
    request = GenerationRequest(
        id=sample.id,
        prompt=sample.ids[: sample.prompt_tokens],
        max_tokens=sample.answer_tokens,
        sampling=SamplingParams(temperature=0.0),
        stop_ids=frozenset(built.tokenizer.eos_ids),
    )
    if sample.body is not None:
        body = {**sample.body, "model": planner.model, "temperature": 0}
        planned = planner.plan(decode_request(encode(body)), time.monotonic()).sequences[0]
        request = replace(planned, id=sample.id, max_tokens=sample.answer_tokens)
    return replace(request, sources=sources, cache_scope=f"{sources}/{sample.id}")


def _answer(built: Built, request: GenerationRequest, run: _Run) -> None:
    began, text, last = time.perf_counter(), [], Output(id=request.id)
    built.engine.add(request)
    while last.finish_reason is None:
        for last in built.engine.step():
            text.append(last.text)
    run.seconds += time.perf_counter() - began
    report = last.report
    assert report is not None
    drafted, accepted = report.totals()
    run.texts.append("".join(text))
    run.tokens += last.output_tokens
    run.steps += report.steps
    run.drafted, run.accepted = run.drafted + drafted, run.accepted + accepted
