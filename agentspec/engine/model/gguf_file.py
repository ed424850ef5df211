"""A GGUF file as a checkpoint: tensors dequantised, under the names Hugging Face gives them.

Legend: N outputs, K inputs of a linear layer, D head size.
"""

from __future__ import annotations

import re
from pathlib import Path

import torch
from agentspec_kernels.linear_q import QuantizedWeight, from_q4_1, from_q8_0
from gguf import GGMLQuantizationType
from torch import Tensor

from .config import ModelConfig, from_gguf
from .errors import UnsupportedModel, WeightsError
from .gguf_header import GgufFile
from .shard import Slice

_TOP = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_BLOCK = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_PACKED = {GGMLQuantizationType.Q4_1: from_q4_1, GGMLQuantizationType.Q8_0: from_q8_0}
_INTERLEAVED = frozenset({"llama"})
"""Architectures whose q and k rows llama.cpp's converter permutes to neighbouring pairs."""


class GgufCheckpoint:
    """An open GGUF file. ``config``: its shape; ``names``: its tensors by Hugging Face name.

    Raises ``UnsupportedModel`` or ``WeightsError`` when opened.
    """

    def __init__(self, path: Path):
        self._file = GgufFile(path)
        self._stored = {_name(name, path): name for name in self._file.tensors}
        if "model.embed_tokens.weight" not in self._stored:
            raise WeightsError(f"{path}: missing tensor token_embd.weight")
        self.config: ModelConfig = from_gguf(
            self._file.fields,
            vocab=self._file.tensors["token_embd.weight"].shape[0],
            tied="lm_head.weight" not in self._stored,
        )

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        """[N, K] or [K]."""
        return tuple(self._file.tensors[self._stored[name]].shape)

    def read(self, name: str, part: Slice | None = None) -> Tensor:
        """The tensor ``name`` dequantised: float32, [N, K] or [K]; a copy. part: only that."""
        weight = torch.from_numpy(self._file.read(self._stored[name]))
        if self._interleaved(name):
            weight = unpermute(weight, self.config.head_dim)
        return (
            weight if part is None else weight.narrow(part.dim, part.start, part.stop - part.start)
        )

    def quantized(self, name: str) -> QuantizedWeight | None:
        """The matrix ``name`` bit for bit as stored (Q4_1, Q8_0), None where it is otherwise."""
        stored = self._stored[name]
        info = self._file.tensors[stored]
        if info.kind not in _PACKED:
            return None
        weight = _PACKED[info.kind](self._file.raw(stored), *info.shape)
        if self._interleaved(name):
            order = torch.arange(info.shape[0])[:, None]
            weight = weight.rows(unpermute(order, self.config.head_dim)[:, 0].numpy())
        return weight

    def _interleaved(self, name: str) -> bool:
        return self.config.architecture in _INTERLEAVED and name.endswith(
            ("q_proj.weight", "k_proj.weight")
        )


def unpermute(weight: Tensor, head_dim: int) -> Tensor:
    """Rows of neighbouring pairs to half-rotation order: [N, K] -> [N, K], head by head.

    The inverse of what llama.cpp's converter does to q and k of the llama architecture.
    """
    rows, inputs = weight.shape
    pairs = weight.view(rows // head_dim, head_dim // 2, 2, inputs)
    return pairs.transpose(1, 2).reshape(rows, inputs)


def _name(name: str, path: Path) -> str:
    """Hugging Face's name of a GGUF tensor."""
    if name in _TOP:
        return _TOP[name]
    found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.weight", name)
    if found and found.group(2) in _BLOCK:
        return f"model.layers.{found.group(1)}.{_BLOCK[found.group(2)]}.weight"
    raise UnsupportedModel(f"{path}: unexpected tensor {name}")
