"""Tiny drafts, packed samples and frozen tables for the tests of this folder.

Legend: V vocabulary, E hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from agentspec.engine.model.config import ModelConfig
from agentspec.engine.train.dataset import seeded
from agentspec.engine.train.feature_cache import Entry
from agentspec.engine.train.spec import DraftSpec
from agentspec.engine.train.target import Featured

TARGET = ModelConfig(
    architecture="llama",
    layers=6,
    hidden=12,
    ffn=20,
    heads=4,
    kv_heads=2,
    head_dim=4,
    vocab=23,
    context_tokens=64,
    rope_theta=500.0,
    norm_eps=1e-5,
    tied=False,
)


def spec(method: str, architecture: str = "llama", **changed: Any) -> DraftSpec:
    """A tiny draft of a method with the method's own switches."""
    import dataclasses

    target = dataclasses.replace(TARGET, architecture=architecture)
    values: dict[str, Any] = {
        "method": method,
        "target": target,
        "layers": 1 if method in ("eagle3", "mtp") else 2,
        "block_size": 4,
        "mask_token_id": 22,
        "target_layer_ids": (5,) if method == "mtp" else (0, 2, 4),
        "sample_from_anchor": method != "dflash",
        "causal": method == "jetspec",
    }
    if method == "dspark":
        values |= {"markov_rank": 5, "confidence_head": True}
    return DraftSpec(**(values | changed))


@dataclass
class Memory:
    """Samples with random features, kept in memory. A ``dataset.Source``."""

    lengths: list[tuple[int, int]]
    """(prompt tokens, tokens) of each sample."""
    taps: int = 3
    seed: int = 0
    entries: list[Entry] = field(default_factory=list)
    held: dict[str, tuple[Tensor, Featured]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for i, (prompt, tokens) in enumerate(self.lengths):
            name, draw = f"s{i}", seeded(self.seed, "sample", i)
            self.entries.append(Entry(name, 0, 0, tokens, prompt))
            ids = torch.randint(0, TARGET.vocab - 1, (tokens,), generator=draw)
            features = torch.randn(tokens, self.taps * TARGET.hidden, generator=draw)
            last = torch.randn(tokens, TARGET.hidden, generator=draw) * 2
            self.held[name] = ids, Featured(features, last)

    def read(self, entry: Entry) -> tuple[Tensor, Featured]:
        return self.held[entry.id]


def tables(seed: int = 3) -> tuple[Tensor, Tensor]:
    """embedding and head [V, E] float64."""
    draw = seeded(seed, "tables")
    shape = (TARGET.vocab, TARGET.hidden)
    return tuple(torch.randn(shape, generator=draw).double() for _ in range(2))  # type: ignore[return-value]
