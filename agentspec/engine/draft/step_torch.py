"""EAGLE-3 and MTP rows in plain torch: where the CPU library isn't, and what tests compare with.

Legend: T rows, W wanted rows, N tapped features, E hidden size, I inputs of the attention, H heads,
J K/V heads, D head size, V vocabulary, U rows of draft logits.
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

from .backbone import PAGE, SCRATCH_PAGES
from .step_backbone import StepChunk, StepRow, prefix_of, sizes
from .step_config import StepConfig
from .tables import dense_tables

if TYPE_CHECKING:
    from agentspec.engine.model.llama import Llama

    from .draft_file import DraftFile

_MOST_AHEAD = 64


class TorchStepBackbone:
    """A ``StepBackbone`` in float32."""

    def __init__(
        self,
        config: StepConfig,
        file: DraftFile,
        target: Llama,
        ids: npt.NDArray,
        *,
        taps: int,
        num_pages: int,
        positions: int,
    ):
        """ids: [U], the token of each row of logits. taps: how many. positions: the longest
        sequence. Raises ``WeightsError``."""
        self.num_pages = num_pages
        self.config = config
        shape, prefix = config.shape, prefix_of(file)
        self._weights = {
            name.removeprefix(prefix): torch.from_numpy(file.dense(name, *size))
            for name, size in sizes(config, prefix, taps).items()
        }
        self._embedding, self._head = dense_tables(
            config, file, ids, target.embedding, target.lm_head
        )
        self._target_norm = target.norm.float()
        count = positions + _MOST_AHEAD
        cos, sin = rope_table(count, shape.head_dim, shape.rope_theta, scale=shape.position_scale)
        self._cos, self._sin = cos.float(), sin.float()
        slots = (num_pages + SCRATCH_PAGES) * PAGE
        self._key, self._value = (
            torch.zeros(slots, shape.kv_heads, shape.head_dim) for _ in range(2)
        )

    @torch.no_grad()
    def extend(self, chunks: Sequence[StepChunk]) -> Tensor:
        """See ``StepBackbone``."""
        last = []
        for chunk in chunks:
            carried = self._first(chunk.features.float())
            _, inner = self._enter(carried, chunk.tokens)
            positions = torch.arange(chunk.start, chunk.start + len(chunk.tokens))
            self._write(inner, positions, _slots(chunk.pages, positions))
            last.append(carried[-1])
        return torch.stack(last)

    @torch.no_grad()
    def run(self, rows: Sequence[StepRow]) -> tuple[Tensor, Tensor]:
        """See ``StepBackbone``."""
        carried = torch.stack([row.carried for row in rows])
        positions = torch.tensor([row.position for row in rows])
        residual, inner = self._enter(carried, [row.token for row in rows])
        seen = [_slots(row.pages, torch.arange(row.slot + 1)) for row in rows]
        self._write(inner, positions, torch.stack([slots[-1] for slots in seen]))
        w, eps = self._weights, self.config.shape.norm_eps
        query = self._heads(inner, "q", positions)
        mixed = torch.stack([self._attend(q, slots) for q, slots in zip(query, seen, strict=True)])
        x = residual + F.linear(mixed, w["self_attn.o_proj.weight"])
        n = rms_norm(x, w["post_attention_layernorm.weight"], eps)
        gate = F.silu(F.linear(n, w["mlp.gate_proj.weight"]))
        x = x + F.linear(gate * F.linear(n, w["mlp.up_proj.weight"]), w["mlp.down_proj.weight"])
        normed = rms_norm(x, w["norm.weight"], eps)
        wanted = normed[[row.wanted for row in rows]]
        logits = F.linear(wanted, self._head.float())
        return (normed if self.config.carries_normed else x), logits

    def _first(self, features: Tensor) -> Tensor:
        """features [T, N] -> what stands for the target in a row, [T, E]."""
        if self.config.method == "eagle3":
            return F.linear(features, self._weights["fc.weight"])
        return rms_norm(features, self._target_norm, self.config.shape.norm_eps)

    def _enter(self, carried: Tensor, tokens: Sequence[int]) -> tuple[Tensor, Tensor]:
        """carried [T, E], T tokens -> residual stream [T, E], input of the attention [T, I]."""
        w, eps = self._weights, self.config.shape.norm_eps
        embedded = self._embedding[torch.tensor(tokens)].float()
        if self.config.method == "eagle3":
            normed = rms_norm(carried, w["hidden_norm.weight"], eps)
            pair = torch.cat((rms_norm(embedded, w["input_layernorm.weight"], eps), normed), 1)
            return (normed if self.config.norm_first else carried), pair
        pair = (
            rms_norm(embedded, w["enorm.weight"], eps),
            rms_norm(carried, w["hnorm.weight"], eps),
        )
        z = F.linear(torch.cat(pair, 1), w["eh_proj.weight"])
        return z, rms_norm(z, w["input_layernorm.weight"], eps)

    def _write(self, inner: Tensor, positions: Tensor, slots: Tensor) -> None:
        """K and V of rows ``inner`` [T, I]."""
        self._key[slots] = self._heads(inner, "k", positions)
        value = F.linear(inner, self._weights["self_attn.v_proj.weight"])
        self._value[slots] = value.view(len(slots), *self._value.shape[1:])

    def _heads(self, inner: Tensor, name: str, positions: Tensor) -> Tensor:
        """inner [T, I] -> turned heads [T, H or J, D] of projection q or k."""
        heads = F.linear(inner, self._weights[f"self_attn.{name}_proj.weight"])
        heads = heads.view(len(positions), -1, self.config.shape.head_dim)
        if self.config.qk_norm:
            weight = self._weights[f"self_attn.{name}_norm.weight"]
            heads = rms_norm(heads, weight, self.config.shape.norm_eps)
        return rope(heads, self._cos[positions], self._sin[positions])

    def _attend(self, query: Tensor, slots: Tensor) -> Tensor:
        """query [H, D] over the keys at ``slots`` -> [H*D]."""
        group = self.config.shape.heads // self.config.shape.kv_heads
        keys = self._key[slots].repeat_interleave(group, 1).transpose(0, 1)
        values = self._value[slots].repeat_interleave(group, 1).transpose(0, 1)
        return F.scaled_dot_product_attention(query[:, None], keys, values).flatten()


def _slots(pages: Sequence[int], positions: Tensor) -> Tensor:
    """[T] int64: where positions lie."""
    return torch.tensor(pages)[positions // PAGE] * PAGE + positions % PAGE
