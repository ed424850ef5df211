"""The drafts of a running engine: read from a folder, taken in and dropped between two steps.

Read next: ``draft/load.py`` and ``draft/load_steps.py`` (from a folder to a drafter).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentspec.settings_drafts import DraftSettings
from agentspec.wire.service import DraftCard

from .draft.block import BlockOptions
from .draft.draft_file import read_config
from .draft.errors import DraftError
from .draft.load import load_block
from .draft.load_steps import load_steps
from .draft.step_config import is_step_draft
from .draft.target import TargetFacts
from .train.identity import chat_template_sha256, tokenizer_sha256, weights_id

if TYPE_CHECKING:
    from .core import Engine
    from .draft.base import Drafter
    from .runners import AnyRunner
    from .tokenizer import Tokenizer
    from .turn import Planner


def facts_of(runner: AnyRunner, weights: Path, tokenizer: Tokenizer) -> TargetFacts:
    """What a draft of this target must fit."""
    return TargetFacts(
        config=runner.model.config,
        format="int8" if runner.exact else runner.kind,
        weights_id=lambda: weights_id(weights),
        tokenizer_sha256=lambda: tokenizer_sha256(tokenizer),
        chat_template_sha256=lambda: chat_template_sha256(tokenizer),
    )


def load_draft(settings: DraftSettings, runner: AnyRunner, target: TargetFacts) -> Drafter:
    """The drafter of a folder, whatever its method. Raises a kind of ``ModelError``."""
    path = Path(settings.path).expanduser()
    if is_step_draft(read_config(path)):
        return load_steps(path, runner, target, name=settings.name, head_rows=settings.head_rows)
    options = BlockOptions(
        blind=settings.blind,
        forced=settings.forced,
        candidates=settings.candidates,
        head_rows=settings.head_rows,
    )
    return load_block(path, runner, target, name=settings.name, options=options)


@dataclass(slots=True)
class Drafts:
    """``read`` may run on any thread (it takes seconds); the rest on the engine's, between steps.

    A draft's name stands behind the engine's own sources in every request's choice.
    """

    runner: AnyRunner
    target: TargetFacts
    engine: Engine
    planner: Planner
    _loaded: dict[str, DraftCard] = field(default_factory=dict)

    def read(self, settings: DraftSettings) -> Drafter:
        """Raises a kind of ``ModelError`` that names what doesn't fit."""
        return load_draft(settings, self.runner, self.target)

    def take(self, drafter: Drafter, path: str) -> DraftCard:
        """Let requests use it from now on. Raises ``DraftError`` where its name is taken."""
        try:
            self.engine.add_drafter(drafter)
        except ValueError as error:
            raise DraftError(str(error)) from None
        card = DraftCard(name=drafter.name, path=path, taps=list(drafter.taps))
        self._loaded[drafter.name] = card
        self.planner.sources = (*self.planner.sources, drafter.name)
        return card

    def drop(self, name: str) -> DraftCard:
        """Running requests go on without it; its memory is free. Raises ``DraftError``."""
        if name not in self._loaded:
            known = ", ".join(self._loaded) or "none"
            raise DraftError(f"no draft '{name}' is loaded (loaded: {known})")
        self.planner.sources = tuple(one for one in self.planner.sources if one != name)
        self.engine.drop_drafter(name)
        return self._loaded.pop(name)

    def cards(self) -> list[DraftCard]:
        """In the order of loading."""
        return list(self._loaded.values())
