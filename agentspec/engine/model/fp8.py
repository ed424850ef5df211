"""FP8 checkpoints (e4m3), dequantised when they are read; formats by ``quantization_config``.

"fp8": ``weight_scale_inv`` [N / B, K / C] for blocks of B x C (DeepSeek-V3, arXiv 2412.19437; the
Qwen3-FP8 files), or one for a tensor. "compressed-tensors" and "fbgemm_fp8": ``weight_scale``, one
for a tensor, [1], or a row, [N, 1]. "modelopt": one for a tensor. Scales of activations are left
out: activations stay in the model's dtype.

Legend: N outputs, K inputs of a linear layer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .errors import UnsupportedModel, WeightsError
from .shard import Slice

_FORMATS = ("fp8", "compressed-tensors", "fbgemm_fp8", "modelopt")
_SCALES = ("weight_scale_inv", "weight_scale")
_LEFT_OUT = ("input_scale", "activation_scale", "input_scale_ub", "k_scale", "v_scale")


@dataclass(frozen=True, slots=True)
class Fp8:
    """scales: names of tensors that are no weights. block: outputs and inputs of a scale, where the
    format has blocks."""

    scales: frozenset[str]
    block: tuple[int, int] | None

    @classmethod
    def of(cls, raw: Mapping[str, Any] | None, names: Collection[str]) -> Fp8 | None:
        """None: not quantised. Raises ``UnsupportedModel`` naming another quantisation."""
        if raw is None:
            return None
        method = raw.get("quant_method")
        kind = str(raw.get("format") or raw.get("quant_algo") or "")
        other = method == "compressed-tensors" and kind != "float-quantized"
        other |= method == "modelopt" and kind != "FP8"
        other |= method == "fp8" and raw.get("fmt", "e4m3") != "e4m3"
        if method not in _FORMATS or other:
            said = f"{method} {kind}".strip()
            raise UnsupportedModel(f"config.json: quantization '{said}' is not supported")
        ends = tuple(f".{name}" for name in (*_SCALES, *_LEFT_OUT))
        size = raw.get("weight_block_size")
        block = None if size is None else (int(size[0]), int(size[1]))
        return cls(frozenset(name for name in names if name.endswith(ends)), block)

    def dequantised(
        self,
        name: str,
        codes: Tensor,
        whole: tuple[int, ...],
        part: Slice | None,
        read: Callable[[str], Tensor],
    ) -> Tensor:
        """codes [n, k] e4m3, ``part`` of the tensor ``name`` of shape ``whole`` -> [n, k] float32.

        read: a tensor by name. Raises ``UnsupportedModel`` or ``WeightsError``.
        """
        if codes.dtype != torch.float8_e4m3fn or codes.ndim != 2:
            raise UnsupportedModel(f"tensor {name} is {codes.dtype} of {list(codes.shape)}")
        stem = name.removesuffix("weight")
        found = next((stem + end for end in _SCALES if stem + end in self.scales), None)
        if found is None:
            raise WeightsError(f"missing tensor {stem}{_SCALES[0]} or {stem}{_SCALES[1]}")
        scale = self._spread(read(found).float(), whole, found)
        if part is not None:
            scale = scale.narrow(part.dim, part.start, part.stop - part.start)
        return codes.float() * scale

    def _spread(self, scale: Tensor, whole: tuple[int, ...], name: str) -> Tensor:
        """A scale as stored -> [N, K], a view where it can be."""
        rows, columns = whole
        if scale.numel() == 1:
            return scale.reshape(1, 1).expand(rows, columns)
        if self.block is None:
            if list(scale.shape) not in ([rows], [rows, 1]):
                raise WeightsError(f"tensor {name} is {list(scale.shape)}, for {rows} rows")
            return scale.reshape(rows, 1).expand(rows, columns)
        high, wide = self.block
        if list(scale.shape) != [-(-rows // high), -(-columns // wide)]:
            raise WeightsError(f"tensor {name} is {list(scale.shape)}, for blocks of {self.block}")
        spread = scale.repeat_interleave(high, 0)[:rows]
        return spread.repeat_interleave(wide, 1)[:, :columns]
