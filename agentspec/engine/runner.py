"""From spans of token ids to logits: packs them, runs the model once, owns the paged K/V tensors.

Legend: T packed tokens, R rows whose logits are wanted, V vocabulary, N tapped features, L layers,
P pages of G tokens, J K/V heads, D head size.

Read next: ``model/decoder.py`` (what runs), ``batch.py`` (what goes in and out).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from agentspec_kernels.kv_move import kv_compact
from agentspec_kernels.paged_attention import PagedLayout

from agentspec.settings import EngineSettings

from .batch import Forward, Span
from .model import Model, load_model
from .model.config import Stretch
from .model.layers import KvCache
from .model.shard import Shard
from .model.threads import default_threads

_DTYPES = {
    "auto": torch.bfloat16,
    "bf16": torch.bfloat16,
    "fp32": torch.float32,
    "fp64": torch.float64,
}


class Runner:
    """One model, its page pool, and the one call that computes.

    vocab_size: V, padding included. page_tokens, num_pages: G and P.
    context_tokens: the longest sequence that can run (settings, model and pool allow it).
    kind: names the arithmetic, so what was measured on it; threads: how many run a pass
        (over all ranks); 0: a GPU runs it.
    exact: whether a row's bits are independent of the other rows, chunking and page placement;
        False here: torch's matrix products choose their summation order by shape.
    """

    exact = False

    def __init__(
        self,
        model: Model,
        *,
        page_tokens: int,
        num_pages: int,
        context_tokens: int,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
    ):
        """dtype: of the model's weights; K/V is kept in it too."""
        config = model.config
        self.model = model
        self.kind = f"torch-{dtype}".replace("torch.", "")
        self.device = torch.device(device)
        self.threads = torch.get_num_threads() if self.device.type == "cpu" else 0
        self.vocab_size = config.vocab
        self.page_tokens = page_tokens
        self.num_pages = num_pages
        self.context_tokens = min(context_tokens, config.context_tokens, num_pages * page_tokens)
        shape = (2, num_pages, page_tokens, model.kv_heads, config.head_dim)
        # The system maps zeroed pages when they are first written: an idle pool is free.
        planes = [torch.zeros(shape, dtype=dtype, device=device) for _ in range(config.layers)]
        self._caches = [KvCache(plane[0], plane[1]) for plane in planes]
        self._logits_dtype = torch.promote_types(dtype, torch.float32)

    @classmethod
    def load(
        cls,
        settings: EngineSettings,
        path: Path,
        *,
        device: torch.device | str = "cpu",
        taps: Sequence[int] = (),
        shard: Shard | None = None,
    ) -> Runner:
        """The runner of a GGUF file or safetensors folder; sets torch's threads for the process.

        taps: decoder layers whose outputs ``Forward.features`` holds, side by side. shard: of a
        rank of several. Raises ``UnsupportedModel`` or ``WeightsError``.
        """
        torch.set_num_threads(settings.threads or default_threads())
        dtype = _DTYPES[settings.dtype]
        stretch = Stretch(settings.rope_scale, settings.rope_scaling)
        model = load_model(
            path,
            dtype=dtype,
            device=device,
            taps=taps,
            context_tokens=settings.context_tokens,
            stretch=stretch,
            shard=shard,
        )
        return cls(
            model,
            page_tokens=settings.page_tokens,
            num_pages=max(1, settings.kv_tokens // settings.page_tokens),
            context_tokens=settings.context_tokens,
            dtype=dtype,
            device=device,
        )

    def set_taps(self, taps: Sequence[int]) -> None:
        """See ``taps.Tappable``."""
        self.model.set_taps(taps)

    @torch.no_grad()
    def forward(self, spans: Sequence[Span]) -> Forward:
        """One pass over all spans; writes their K/V, returns logits [R, V] of the wanted rows.

        Logits are float32 (float64 for a float64 model), in span order then row order. Spans must
        not share a page that either of them writes. R may be 0.
        """
        layout = PagedLayout.build(
            [span.start for span in spans],
            [len(span.tokens) for span in spans],
            [span.pages for span in spans],
            page_tokens=self.page_tokens,
            device=self.device,
            trees={i: span.rows_before() for i, span in enumerate(spans) if span.parents},
        )
        tokens = torch.tensor([token for span in spans for token in span.tokens], dtype=torch.int64)
        hidden, features = self.model.forward(tokens.to(self.device), layout, self._caches)
        wanted = _wanted_rows(spans)
        if len(wanted) < len(tokens):
            hidden = hidden[torch.tensor(wanted, dtype=torch.int64, device=self.device)]
        return Forward(self.model.logits(hidden).to(self._logits_dtype), features)

    def compact(self, pages: Sequence[int], moves: Sequence[tuple[int, int]]) -> None:
        """Move K/V within a sequence: for each (source, to) slot ``to`` becomes what source is."""
        size, device = self.page_tokens, self.device
        slots = [[pages[slot // size] * size + slot % size for slot in move] for move in moves]
        pairs = torch.tensor(slots, dtype=torch.int64, device=device).view(-1, 2)
        starts = torch.tensor([0, len(moves)], dtype=torch.int32, device=device)
        for cache in self._caches:
            kv_compact(cache.key, cache.value, pairs, starts)


def _wanted_rows(spans: Sequence[Span]) -> list[int]:
    """Packed indices of the rows whose logits are wanted, ascending."""
    wanted: list[int] = []
    first = 0
    for span in spans:
        assert all(0 <= row < len(span.tokens) for row in span.logit_rows)
        wanted.extend(first + row for row in span.logit_rows)
        first += len(span.tokens)
    return wanted
