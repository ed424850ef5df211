"""The drafts of a running engine: read from a folder, taken in and dropped between two steps.

Read next: ``draft/load.py`` (from a folder to a drafter).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from agentspec.settings_drafts import DraftSettings
from agentspec.wire.service import DraftCard

from .draft.block import BlockOptions
from .draft.draft_file import read_config
from .draft.draft_model import open_draft_model
from .draft.errors import DraftError
from .draft.load import load_draft
from .draft.target import TargetFacts
from .model.config import Stretch
from .train.identity import chat_template_sha256, tokenizer_sha256, weights_id

if TYPE_CHECKING:
    from agentspec.settings import EngineSettings

    from .core import Engine
    from .draft.base import Drafter
    from .runners import AnyRunner
    from .tokenizer import Tokenizer
    from .turn import Planner


_LARGE_VOCABULARY = 32_768
DRAFT_MODEL = "draft_model"
"""The name of a smaller model as a draft source, unless it is given one."""


def facts_of(
    runner: AnyRunner, settings: EngineSettings, weights: Path, tokenizer: Tokenizer
) -> TargetFacts:
    """What a draft of this target must fit."""
    return TargetFacts(
        config=runner.model.config,
        stretch=Stretch(settings.rope_scale, settings.rope_scaling),
        format="int8" if runner.exact else runner.kind,
        weights_id=lambda: weights_id(weights),
        tokenizer_sha256=lambda: tokenizer_sha256(tokenizer),
        chat_template_sha256=lambda: chat_template_sha256(tokenizer),
    )


def _is_model(path: Path) -> bool:
    """Whether it is a language model of its own (GGUF, or so its config.json says)."""
    if not path.is_dir():
        return path.is_file()
    raw = read_config(path)
    named = raw.get("architectures")
    kinds = named if isinstance(named, list) else []
    if any(mark in raw for mark in ("block_size", "target_layer_ids", "speculators_model_type")):
        return False
    return any(str(kind).endswith("ForCausalLM") for kind in kinds)


def head_rows(asked: int | None, vocab: int) -> int | None:
    """How many of the first token ids are drafted; None: all. See ``DraftSettings``."""
    if asked is None:
        return vocab // 2 // 16 * 16 if vocab >= _LARGE_VOCABULARY else None
    return -(-asked // 16) * 16 or None


def _options(settings: DraftSettings, vocab: int) -> BlockOptions:
    return BlockOptions(
        blind=settings.blind,
        forced=settings.forced,
        candidates=settings.candidates,
        branches=settings.branches,
        bits=settings.bits,
        head_rows=head_rows(settings.head_rows, vocab),
    )


@dataclass(slots=True)
class Drafts:
    """``read`` may run on any thread (it takes seconds); the rest on the engine's, between steps.

    A draft's name stands behind the engine's own sources in every request's choice.
    """

    runner: AnyRunner
    target: TargetFacts
    settings: EngineSettings
    tokenizer: Tokenizer
    engine: Engine
    planner: Planner
    _loaded: dict[str, DraftCard] = field(default_factory=dict)

    def read(self, settings: DraftSettings) -> Drafter:
        """The drafter of a draft's folder, whatever its method, or of a whole smaller model.

        Raises a kind of ``ModelError`` that names what doesn't fit.
        """
        path = Path(settings.path).expanduser()
        vocab = self.target.config.vocab
        if _is_model(path):
            own = msgspec.structs.replace(self.settings, weights=str(path))
            name = settings.name or DRAFT_MODEL
            return open_draft_model(own, path, self.tokenizer, vocab, name=name)
        return load_draft(
            path, self.runner, self.target, name=settings.name, options=_options(settings, vocab)
        )

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
