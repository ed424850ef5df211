"""A block draft's layers in plain torch: where the CPU library isn't, and what tests compare with.

Legend: T rows, R wanted rows, N tapped features, E hidden size, H heads, J K/V heads, D head size,
C context slots, V vocabulary, U rows of draft logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy.typing as npt
import torch
import torch.nn.functional as F
from agentspec_kernels.rms_norm import rms_norm
from agentspec_kernels.rope import rope, rope_table
from torch import Tensor

from .backbone import PAGE, SCRATCH_PAGES, Block, Chunk
from .block_config import MOST_ROWS, BlockConfig
from .tables import dense_tables

if TYPE_CHECKING:
    from .draft_file import DraftFile


class TorchBackbone:
    """A ``Backbone`` in float32, on the device of the target's tables."""

    def __init__(
        self,
        config: BlockConfig,
        file: DraftFile,
        embedding: Tensor,
        head: Tensor,
        ids: npt.NDArray,
        *,
        num_pages: int,
        positions: int,
    ):
        """embedding, head: the target's [V, E]; the draft's own go before. ids: [U], the token of
        each row of logits. positions: the longest sequence. Raises ``WeightsError``."""
        self.num_pages = num_pages
        self.config = config
        shape = config.shape
        self._device = embedding.device
        self._weights = {n: w.to(self._device) for n, w in _read(config, file).items()}
        self._embedding, self._head = dense_tables(config, file, ids, embedding, head)
        self._cos, self._sin = (
            table.float().to(self._device)
            for table in rope_table(
                positions + MOST_ROWS,
                shape.head_dim,
                shape.rope_theta,
                scale=shape.position_scale,
            )
        )
        slots = (num_pages + SCRATCH_PAGES) * PAGE
        self._key, self._value = (
            torch.zeros((shape.layers, slots, shape.kv_heads, shape.head_dim), device=self._device)
            for _ in range(2)
        )

    @torch.no_grad()
    def extend(self, chunks: Sequence[Chunk]) -> None:
        """See ``Backbone``."""
        w, shape = self._weights, self.config.shape
        for chunk in chunks:
            h = F.linear(chunk.features.float(), w["fc.weight"])
            h = rms_norm(h, w["hidden_norm.weight"], shape.norm_eps)
            positions = torch.arange(chunk.start, chunk.start + h.shape[0], device=self._device)
            slots = _slots(chunk.pages, positions)
            for index in range(shape.layers):
                key, value = self._keys_values(h, index, positions)
                self._key[index, slots], self._value[index, slots] = key, value

    @torch.no_grad()
    def run(
        self, blocks: Sequence[Block], chunks: Sequence[Chunk] = ()
    ) -> tuple[npt.NDArray, npt.NDArray]:
        """See ``Backbone``."""
        self.extend(chunks)
        hidden = torch.cat([self._one(block)[list(block.rows)] for block in blocks])
        logits = F.linear(hidden, self._head.float())
        return hidden.cpu().contiguous().numpy(), logits.cpu().contiguous().numpy()

    def _one(self, block: Block) -> Tensor:
        """The rows of one block after the last norm: [T, E]."""
        w, shape = self._weights, self.config.shape
        device = self._device
        x = self._embedding[torch.tensor(block.ids, device=device)].float()
        count = x.shape[0]
        positions = torch.arange(block.position, block.position + count, device=device)
        seen = _slots(block.pages, torch.arange(block.context + count, device=device))
        mask = torch.ones(count, block.context + count, dtype=torch.bool, device=device)
        if self.config.causal:
            mask = mask.tril(block.context)
        for index in range(shape.layers):
            prefix = f"layers.{index}."
            n = rms_norm(x, w[prefix + "input_layernorm.weight"], shape.norm_eps)
            key, value = self._keys_values(n, index, positions)
            self._key[index, seen[block.context :]] = key
            self._value[index, seen[block.context :]] = value
            query = F.linear(n, w[prefix + "self_attn.q_proj.weight"])
            query = query.view(count, shape.heads, shape.head_dim)
            query = self._turned(query, prefix + "self_attn.q_norm.weight", positions)
            group = shape.heads // shape.kv_heads
            keys = self._key[index, seen].repeat_interleave(group, 1)
            values = self._value[index, seen].repeat_interleave(group, 1)
            mixed = F.scaled_dot_product_attention(
                query.transpose(0, 1), keys.transpose(0, 1), values.transpose(0, 1), mask
            )
            mixed = mixed.transpose(0, 1).reshape(count, -1)
            x = x + F.linear(mixed, w[prefix + "self_attn.o_proj.weight"])
            n = rms_norm(x, w[prefix + "post_attention_layernorm.weight"], shape.norm_eps)
            gate = F.silu(F.linear(n, w[prefix + "mlp.gate_proj.weight"]))
            up = F.linear(n, w[prefix + "mlp.up_proj.weight"])
            x = x + F.linear(gate * up, w[prefix + "mlp.down_proj.weight"])
        return rms_norm(x, w["norm.weight"], shape.norm_eps)

    def _keys_values(self, n: Tensor, index: int, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Two [T, J, D] of rows n [T, E]; keys are turned."""
        prefix, shape = f"layers.{index}.self_attn.", self.config.shape
        key, value = (
            F.linear(n, self._weights[f"{prefix}{name}_proj.weight"]).view(
                n.shape[0], shape.kv_heads, shape.head_dim
            )
            for name in "kv"
        )
        return self._turned(key, prefix + "k_norm.weight", positions), value

    def _turned(self, heads: Tensor, norm: str, positions: Tensor) -> Tensor:
        """[T, heads, D] normed, where there is a norm of that name, and turned."""
        if self.config.qk_norm:
            heads = rms_norm(heads, self._weights[norm], self.config.shape.norm_eps)
        return rope(heads, self._cos[positions], self._sin[positions])


def _slots(pages: Sequence[int], positions: Tensor) -> Tensor:
    """[T] int64: where positions lie."""
    table = torch.tensor(pages, device=positions.device)
    return table[positions // PAGE] * PAGE + positions % PAGE


def _read(config: BlockConfig, file: DraftFile) -> dict[str, Tensor]:
    """The weights of the layers and of what is before and behind them, float32."""
    shape = config.shape
    hidden, ffn, dim = shape.hidden, shape.ffn, shape.head_dim
    query, kv = shape.heads * dim, shape.kv_heads * dim
    sizes: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(config.taps) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    for index in range(shape.layers):
        prefix = f"layers.{index}."
        sizes |= {
            prefix + "self_attn.q_proj.weight": (query, hidden),
            prefix + "self_attn.k_proj.weight": (kv, hidden),
            prefix + "self_attn.v_proj.weight": (kv, hidden),
            prefix + "self_attn.o_proj.weight": (hidden, query),
            prefix + "mlp.gate_proj.weight": (ffn, hidden),
            prefix + "mlp.up_proj.weight": (ffn, hidden),
            prefix + "mlp.down_proj.weight": (hidden, ffn),
            prefix + "input_layernorm.weight": (hidden,),
            prefix + "post_attention_layernorm.weight": (hidden,),
        }
        if config.qk_norm:
            sizes |= {prefix + f"self_attn.{name}_norm.weight": (dim,) for name in "qk"}
    return {name: torch.from_numpy(file.dense(name, *size)) for name, size in sizes.items()}
