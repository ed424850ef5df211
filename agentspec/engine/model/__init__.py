"""Models the engine can run, by architecture; torch is imported when one is loaded, not before.

Read next: ``decoder.py`` (a model), ``weights.py`` (how it is filled), ``fetch.py`` (its source).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .config import UNSTRETCHED, Stretch
from .errors import UnsupportedModel

if TYPE_CHECKING:
    import torch
    from agentspec_kernels.paged_attention import PagedLayout
    from torch import Tensor

    from .config import ModelConfig
    from .layers import KvCache
    from .shard import Shard

ARCHITECTURES: Mapping[str, str] = {
    "llama": "llama:Llama",
    "qwen3": "llama:Llama",
    "qwen3_moe": "qwen3_moe:Qwen3Moe",
    "gemma3": "gemma3:Gemma3",
    "gemma3_text": "gemma3:Gemma3",
}
"""Checkpoint's architecture (``model_type``, ``general.architecture``) -> module:class here."""


class Model(Protocol):
    """A loaded decoder. kv_heads: of this rank.

    Legend: T packed tokens, R wanted rows, V vocabulary, E hidden size, A tapped layers.
    """

    config: ModelConfig
    kv_heads: int

    def set_taps(self, taps: Sequence[int]) -> None:
        """The layers (from 0) whose outputs are features. Raises ``ValueError``."""
        ...

    def forward(
        self, tokens: Tensor, layout: PagedLayout, caches: Sequence[KvCache]
    ) -> tuple[Tensor, Tensor | None]:
        """tokens [T] int64 -> hidden [T, E], features [T, A*E] or None; writes ``caches``."""
        ...

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, E] -> [R, V] of the model's dtype."""
        ...


def architecture(name: str) -> Any:
    """The class that runs ``name``. Raises ``UnsupportedModel``."""
    if name not in ARCHITECTURES:
        known = ", ".join(sorted(ARCHITECTURES))
        raise UnsupportedModel(f"architecture '{name}' is not supported (known: {known})")
    module, _, cls = ARCHITECTURES[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{module}"), cls)


def load_model(
    path: Path,
    *,
    dtype: torch.dtype,
    device: torch.device | str = "cpu",
    taps: Sequence[int] = (),
    context_tokens: int | None = None,
    stretch: Stretch = UNSTRETCHED,
    shard: Shard | None = None,
) -> Model:
    """The model of a GGUF file or a safetensors folder, weights in ``dtype`` on ``device``.

    taps: decoder layers whose outputs become features. stretch: a longer window. context_tokens:
    None, or fewer positions than the window. shard: of which rank the weights are.
    Raises ``UnsupportedModel`` or ``WeightsError``.
    """
    from .weights import open_checkpoint

    checkpoint = open_checkpoint(path, stretch)
    cls = architecture(checkpoint.config.architecture)
    model = cls(
        checkpoint.config,
        dtype=dtype,
        device=device,
        taps=taps,
        context_tokens=context_tokens,
        shard=shard,
    )
    model.load(checkpoint)
    return model
