"""What the families of decoders have in common, on the kernels' ops; each changes a block.

Legend: T packed tokens, R rows whose logits are wanted, V vocabulary, E hidden size, D head size,
L layers, A tapped layers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from agentspec_kernels.linear import linear
from agentspec_kernels.paged_attention import PagedLayout
from agentspec_kernels.silu_mul import silu_mul
from torch import Tensor

from .config import ModelConfig, checked_taps
from .layers import (
    Attention,
    Build,
    FeedForward,
    Fused,
    KvCache,
    Norm,
    Output,
    Rows,
    collect,
    product,
)
from .rope import turns
from .shard import WHOLE, Shard, Slice
from .weights import Checkpoint, fill

Block = Callable[[Tensor], Tensor]


class Decoder:
    """A decoder whose weights are NaN until ``load``.

    offset_norms: a checkpoint of this family holds the weights of norms less one. kv_heads: those
    of this rank. lm_head: whole on rank 0, where drafts use it; else its own rows. elsewhere: names
    of weights that other ranks have.
    """

    offset_norms = False

    def __init__(
        self,
        config: ModelConfig,
        *,
        dtype: torch.dtype,
        device: torch.device | str = "cpu",
        taps: Sequence[int] = (),
        context_tokens: int | None = None,
        shard: Shard | None = None,
    ):
        """taps: decoder layers (from 0) whose outputs ``forward`` returns as features.

        context_tokens: positions that may be used; None: all that the model was trained for.
        Raises ``UnsupportedModel`` where the ranks can't share the model.
        """
        self.config = config
        self.shard = shard = shard or WHOLE
        self.set_taps(taps)
        self.build = build = Build(dtype, device, shard)
        shared = shard.shared("K/V heads", config.kv_heads)
        self.kv_heads = shared[1] - shared[0]
        self._targets: dict[str, Tensor] = {}
        self._slices: dict[str, Slice] = {}
        self._offsets: list[Tensor] = []
        self.elsewhere: set[str] = set()
        self.embedding = build.empty(config.vocab, config.hidden)
        self._targets["model.embed_tokens.weight"] = self.embedding
        self.layers = [
            (self.attention(f"model.layers.{i}.", i), self.feed_forward(f"model.layers.{i}.", i))
            for i in range(config.layers)
        ]
        self.norm = self.normed("model.norm.weight", config.hidden).weight
        self._last = Norm(self.norm, config.norm_eps)
        self._head = self._lm_head()
        positions = min(context_tokens or config.context_tokens, config.context_tokens)
        angles = torch.promote_types(dtype, torch.float32)
        self._turns = [
            [torch.from_numpy(table).to(device, angles) for table in turns(config, positions)],
        ]
        if config.sliding:
            local = turns(config, positions, local=True)
            self._turns.append([torch.from_numpy(table).to(device, angles) for table in local])

    def set_taps(self, taps: Sequence[int]) -> None:
        """The layers (from 0) whose outputs are features. Raises ``ValueError``."""
        self.taps = checked_taps(taps, self.config)

    def targets(self) -> dict[str, Tensor]:
        """Every weight under its checkpoint name, as a view that loading writes to."""
        return dict(self._targets)

    def load(self, checkpoint: Checkpoint) -> None:
        """Fill every weight. Raises ``WeightsError`` naming what is missing or too much."""
        redundant = {n for n in checkpoint.names if n.endswith("rotary_emb.inv_freq")}
        redundant |= self.elsewhere
        if self.config.tied:
            redundant.add("lm_head.weight")
        fill(self._targets, checkpoint, redundant=redundant, slices=self._slices)
        for weight in self._offsets:
            weight += 1.0

    def forward(
        self, tokens: Tensor, layout: PagedLayout, caches: Sequence[KvCache]
    ) -> tuple[Tensor, Tensor | None]:
        """tokens [T] int64 -> hidden [T, E] before the last norm, and features [T, A*E] or None.

        Writes the rows' K and V to ``caches`` (one a layer) at the layout's slots.
        """
        found = [(cos[layout.positions], sin[layout.positions]) for cos, sin in self._turns]
        rows = Rows(layout, (found[0], found[-1]))
        x = self.embedded(tokens)
        tapped: dict[int, Tensor] = {}
        for index, (attention, feed_forward) in enumerate(self.layers):
            x = feed_forward(attention(x, rows, caches[index]))
            if index in self.taps:
                tapped[index] = x
        return x, collect([tapped[index] for index in self.taps])

    def logits(self, hidden: Tensor) -> Tensor:
        """hidden [R, E] of ``forward`` -> next-token logits [R, V] of the model's dtype.

        Raises ``RanksDisagree`` where ranks came to different rows.
        """
        normed = self._last(self.shard.agreed(hidden))
        found = linear(normed, self._head, backend=product(self.build))
        found, cap = self.shard.gathered(found), self.config.logit_cap
        return found if cap is None else torch.tanh(found / cap) * cap

    def embedded(self, tokens: Tensor) -> Tensor:
        """tokens [T] int64 -> [T, E]."""
        return F.embedding(tokens, self.embedding)

    def attention(self, prefix: str, index: int) -> Attention:
        """The attention of layer ``index``, its weights awaiting load."""
        config, shard, size = self.config, self.build.shard, self.config.head_dim
        heads = shard.part("attention heads", config.heads)
        shared = shard.shared("K/V heads", config.kv_heads)
        qkv = self.fused(
            prefix + "self_attn.",
            config.hidden,
            q_proj=Slice(0, heads[0] * size, heads[1] * size, config.heads * size),
            k_proj=Slice(0, shared[0] * size, shared[1] * size, config.kv_heads * size),
            v_proj=Slice(0, shared[0] * size, shared[1] * size, config.kv_heads * size),
        )
        normed = [
            self.normed(f"{prefix}self_attn.{n}_norm.weight", size) for n in "qk" * config.qk_norm
        ]
        return Attention(
            norm=self.normed(prefix + "input_layernorm.weight", config.hidden),
            qkv=qkv,
            out=self.output(prefix + "self_attn.o_proj", config.heads * size),
            heads=heads[1] - heads[0],
            kv_heads=shared[1] - shared[0],
            head_norms=(normed[0], normed[1]) if normed else None,
            scale=config.score_scale,
            window=config.window if index in config.sliding else None,
        )

    def feed_forward(self, prefix: str, index: int) -> Block:
        """The feed-forward of layer ``index``, its weights awaiting load."""
        ffn = self.config.ffn
        mine = Slice(0, *self.build.shard.part("features", ffn), ffn)
        return FeedForward(
            norm=self.normed(prefix + "post_attention_layernorm.weight", self.config.hidden),
            gate_up=self.fused(prefix + "mlp.", self.config.hidden, gate_proj=mine, up_proj=mine),
            down=self.output(prefix + "mlp.down_proj", ffn),
            gate=silu_mul,
        )

    def fused(self, prefix: str, inputs: int, **parts: Slice) -> Fused:
        """Linear layers over one input; ``parts``: which rows of each this rank has."""
        sizes = {name: part.stop - part.start for name, part in parts.items()}
        made = Fused(sizes, inputs, self.build, parts)
        self._know(prefix, made)
        return made

    def output(self, name: str, features: int) -> Output:
        """The product behind split features, to the hidden size."""
        prefix, _, last = name.rpartition(".")
        made = Output(last, features, self.config.hidden, self.build)
        self._know(prefix + ".", made.fused)
        return made

    def normed(self, name: str, size: int) -> Norm:
        """A norm. One whose weight gets one added after load is kept in float32 at least."""
        wide = torch.promote_types(self.build.dtype, torch.float32) if self.offset_norms else None
        weight = self.know(name, self.build.empty(size, dtype=wide))
        if self.offset_norms:
            self._offsets.append(weight)
        return Norm(weight, self.config.norm_eps)

    def know(self, name: str, weight: Tensor, where: Slice | None = None) -> Tensor:
        """``weight``, to be filled with the tensor ``name`` or a slice of it."""
        self._targets[name] = weight
        if where is not None and where.stop - where.start < where.whole:
            self._slices[name] = where
        return weight

    def _know(self, prefix: str, made: Fused) -> None:
        for name, part in made.parts.items():
            self.know(f"{prefix}{name}.weight", part, made.slices.get(name))

    def _lm_head(self) -> Tensor:
        """This rank's rows of lm_head, [V / R, E]; sets ``lm_head``."""
        config, shard = self.config, self.build.shard
        rows = shard.part("tokens of the vocabulary", config.vocab)
        if config.tied:
            self.lm_head = self.embedding
        elif shard.rank == 0:
            self.lm_head = self.know(
                "lm_head.weight", self.build.empty(config.vocab, config.hidden)
            )
        else:
            mine = Slice(0, *rows, config.vocab)
            empty = self.build.empty(rows[1] - rows[0], config.hidden)
            self.lm_head = self.know("lm_head.weight", empty, mine)
            return self.lm_head
        return self.lm_head[rows[0] : rows[1]]
