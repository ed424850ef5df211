"""The target as training needs it: who it is, its frozen tables, its features.

Legend: T tokens of one sequence, N tapped features side by side, E hidden size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agentspec.engine.batch import Span
from agentspec.engine.model.fetch import resolve
from agentspec.engine.model.weights import Checkpoint, open_checkpoint
from agentspec.engine.runners import open_runner
from agentspec.engine.tokenizer import Tokenizer
from agentspec.settings import EngineSettings

from .config import DraftToml
from .errors import TrainError
from .identity import chat_template_sha256, tokenizer_sha256, weights_id
from .spec import TargetId

if TYPE_CHECKING:
    from agentspec.engine.runners import AnyRunner


@dataclass(slots=True)
class Tables:
    """Frozen float32 tables: embedding, head [V, E] (one where tied), norm [E], and its eps."""

    embedding: Tensor
    head: Tensor
    norm: Tensor
    eps: float

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> Tables:
        embedding = checkpoint.read("model.embed_tokens.weight").float()
        tied = checkpoint.config.tied
        head = embedding if tied else checkpoint.read("lm_head.weight").float()
        norm = checkpoint.read("model.norm.weight").float()
        return cls(embedding, head, norm, checkpoint.config.norm_eps)

    def last_hidden(self, x: Tensor) -> Tensor:
        """The final norm: x [T, E] of the last decoder layer -> [T, E] float32."""
        wide = x.float()
        return wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + self.eps) * self.norm


@dataclass
class Target:
    """One opened target. runner and tables are loaded when they are first used."""

    path: Path
    name: str
    settings: EngineSettings
    layers: tuple[int, ...]
    checkpoint: Checkpoint
    tokenizer: Tokenizer
    _id: TargetId | None = field(default=None, repr=False)

    @classmethod
    def open(cls, toml: DraftToml) -> Target:
        """The target of ``draft.toml``. Raises ``ModelError``, ``TrainError``."""
        named = toml.target.weights
        path = resolve(None if named is None else toml.base / named)
        checkpoint = open_checkpoint(path)
        settings = EngineSettings()
        settings.weights = str(path)
        settings.dtype = toml.target.format
        # The engine's own window stays: it decides how tools are shown to the model.
        settings.context_tokens = max(settings.context_tokens, toml.target.context_tokens)
        settings.kv_tokens = max(settings.kv_tokens, settings.context_tokens)
        settings.threads = toml.train.threads
        settings.drafts = []
        settings.tool_format = toml.target.tool_format
        layers = _tapped(toml, checkpoint.config.layers)
        name = toml.target.name or (settings.model if named is None else path.stem)
        settings.model = name
        return cls(path, name, settings, layers, checkpoint, Tokenizer.load(path))

    @cached_property
    def tables(self) -> Tables:
        return Tables.of(self.checkpoint)

    @cached_property
    def runner(self) -> AnyRunner:
        """Taps the chosen layers and the last one."""
        threads = torch.get_num_threads()
        taps = (*self.layers, self.checkpoint.config.layers - 1)
        made = open_runner(self.settings, self.path, taps=taps)
        torch.set_num_threads(threads)  # Loading sets them for serving.
        return made

    @property
    def id(self) -> TargetId:
        """Which target it is; loads the runner, since its format is a part of that."""
        if self._id is None:
            runner = self.runner
            self._id = TargetId(
                name=self.name,
                format="int8" if runner.exact else runner.kind,
                vocab_size=self.checkpoint.config.vocab,
                **self.answering,
            )
        return self._id

    @cached_property
    def answering(self) -> dict[str, str]:
        """What decides which tokens it answers with, and what they mean."""
        return {
            "weights_id": weights_id(self.path),
            "tokenizer_sha256": tokenizer_sha256(self.tokenizer),
            "chat_template_sha256": chat_template_sha256(self.tokenizer),
        }

    def features(self, sequences: Sequence[Sequence[int]], batch_tokens: int) -> Iterator[Featured]:
        """Of every sequence in turn, each read from its beginning; batched where they are short."""
        group: list[list[int]] = []
        for ids in sequences:
            if group and sum(map(len, group)) + len(ids) > batch_tokens:
                yield from self._together(group, batch_tokens)
                group = []
            group.append(list(ids))
        if group:
            yield from self._together(group, batch_tokens)

    def _together(self, group: list[list[int]], batch_tokens: int) -> list[Featured]:
        """One pass over several sequences, or several passes over a long one."""
        if len(group) > 1:
            return self._split(group, self._pass(group, [0] * len(group)))
        ids = group[0]
        parts = [ids[i : i + batch_tokens] for i in range(0, len(ids), batch_tokens)]
        rows = [
            self._pass([part], [i * batch_tokens], length=len(ids)) for i, part in enumerate(parts)
        ]
        return self._split(group, torch.cat(rows))

    def _pass(self, group: list[list[int]], starts: list[int], length: int = 0) -> Tensor:
        """-> [sum of T, N + E] float32, a copy."""
        runner, spans, page = self.runner, [], 0
        for ids, start in zip(group, starts, strict=True):
            count = -(-max(length, start + len(ids)) // runner.page_tokens)
            spans.append(Span(ids, start, list(range(page, page + count))))
            page += count
        assert page <= runner.num_pages, "the K/V pool is smaller than a pass"
        features = runner.forward(spans).features
        assert features is not None
        return features.float().clone()

    def _split(self, group: list[list[int]], rows: Tensor) -> list[Featured]:
        width = self.checkpoint.config.hidden
        found = []
        for part in rows.split([len(ids) for ids in group]):
            last = self.tables.last_hidden(part[:, -width:])
            found.append(Featured(part[:, :-width].bfloat16(), last.bfloat16()))
        return found


def _tapped(toml: DraftToml, layers: int) -> tuple[int, ...]:
    """``cache.layers`` of a target of so many, or five spread ones. Raises ``TrainError``."""
    from .methods import spread_layers

    chosen = tuple(toml.cache.layers or spread_layers(layers))
    if list(chosen) != sorted(set(chosen)) or chosen[0] < 0 or chosen[-1] >= layers - 1:
        raise TrainError(
            f"cache.layers {list(chosen)} must ascend within 0..{layers - 2} (the target has "
            f"{layers} layers, and the last one's output is not for drafts)"
        )
    return chosen


@dataclass(frozen=True, slots=True)
class Featured:
    """features [T, N] and last [T, E] bf16: tapped outputs, and what lm_head takes."""

    features: Tensor
    last: Tensor
