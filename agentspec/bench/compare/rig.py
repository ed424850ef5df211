"""This engine in this process, with every source of a comparison loaded at once."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.bench import report
from agentspec.bench.ours import Ours
from agentspec.bench.stats import looping
from agentspec.bench.teacher import Lesson, Teacher
from agentspec.bench.workloads import Case, Prompt
from agentspec.settings import load as load_settings
from agentspec.settings_drafts import DraftSettings
from agentspec.wire.chat import decode_request, encode

from .drive import Answer, Driver
from .harness import Item, Sampling
from .methods import UNFORCED, Variant
from .rounds import WATCH, Watch

if TYPE_CHECKING:
    from agentspec.engine.build import Built
    from agentspec.engine.request import GenerationRequest
    from agentspec.settings import EngineSettings

_BLIND = ".blind"


def settings_of(
    config: str | None, target: str | None, threads: int, sources: Seq[str]
) -> EngineSettings:
    """The settings of the file, with what a comparison fixes. Raises ``SettingsError``."""
    settings = load_settings(config).engine
    settings.threads = threads or settings.threads
    settings.draft_sources = list(sources)
    settings.drafts = []
    if target is not None:
        settings.weights = target
    return settings


class Rig:
    """Requests are planned as the server plans them. No run finds anything of an earlier one."""

    def __init__(self, built: Built, teacher: Teacher):
        self._ours = Ours(built.engine, built.planner, built.tokenizer, built.weights, teacher)
        self._built = built
        self._teacher = teacher
        self._numbers = itertools.count()
        self._cases: dict[str, Case] = {}
        watch = Watch()
        built.engine.add_drafter(watch)
        self._driver = Driver(built.engine, watch, self._looped)
        self.blind: set[str] = set()

    @classmethod
    def start(cls, settings: EngineSettings, drafts: dict[str, str], blind: bool) -> Rig:
        """blind: load drafts that know the grammar a second time, without it.

        Raises ``SettingsError`` or a kind of ``ModelError``.
        """
        from agentspec.engine.build import build
        from agentspec.engine.draft.block import BlockDrafter

        teachers: list[Teacher] = []

        def wrap(runner: Any) -> Teacher:
            teachers.append(Teacher(runner))
            return teachers[0]

        built = build(settings, wrap)
        copies = set()
        for name, path in drafts.items():
            drafter = built.drafts.read(DraftSettings(path=path, name=name))
            built.drafts.take(drafter, path)
            report.progress(f"draft {name}: {path}")
            if blind and isinstance(drafter, BlockDrafter):
                blinded = DraftSettings(path=path, name=name + _BLIND, blind=True)
                built.drafts.take(built.drafts.read(blinded), path)
                copies.add(name)
        rig = cls(built, teachers[0])
        rig.blind = copies
        return rig

    @property
    def weights(self) -> Path:
        return self._built.weights

    def item(self, prompt: Prompt, max_tokens: int, context: int = 0) -> Item:
        """context: tokens that the prompt is brought to; 0: as it is."""
        case = self._ours.case(prompt, max_tokens, context)
        self._cases[case.id] = case
        planned = self._plan(case, Sampling(0.0))
        grammar = planned.constraint is not None and not case.script
        return Item(case.id, case.workload, grammar, bool(case.script))

    def cases(self, items: Seq[Item]) -> list[Case]:
        """As another engine gets them: those that the model answers freely."""
        return [self._cases[i.id] for i in items if not i.grammar and not i.fixed]

    def ask(
        self, item: Item, variant: Variant, sampling: Sampling, text: str | None = None
    ) -> Answer:
        case = self._cases[item.id]
        script = case.script if text is None else self._ours.script(text)[: case.max_tokens]
        if script:
            self._teacher.teach([Lesson(case.tokens + script, len(case.tokens))])
        try:
            return self._driver.answer(self._request(case, variant, sampling), variant.mode)
        finally:
            self._teacher.teach(())

    def _request(self, case: Case, variant: Variant, sampling: Sampling) -> GenerationRequest:
        planned = self._plan(case, sampling)
        free = variant.method.name == UNFORCED
        return replace(
            planned,
            sources=self._sources(variant),
            cache_scope=f"compare-{next(self._numbers)}",
            session=None,
            constraint=None if free else planned.constraint,
        )

    def _sources(self, variant: Variant) -> tuple[str, ...]:
        if not variant.method.sources:
            return ()
        named = variant.method.sources
        if not variant.masked:
            named = tuple(n + _BLIND if n in self.blind else n for n in named)
        return (*named, WATCH)

    def _plan(self, case: Case, sampling: Sampling) -> GenerationRequest:
        planner = self._built.planner
        body = self._ours.body(case) | {
            "model": planner.model,
            "temperature": sampling.temperature,
            "seed": sampling.seed,
            "max_tokens": case.max_tokens,
            "agentspec": {"speculation": "off"},
        }
        return planner.plan(decode_request(encode(body)), time.monotonic()).sequences[0]

    def _looped(self, text: str) -> bool:
        return looping(self._built.tokenizer.encode(text))
