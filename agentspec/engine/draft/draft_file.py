"""The tensors of a draft's folder, in floats or in int8 with a scale a row.

Legend: N rows, K columns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from agentspec_kernels.draft_block.head import quantize_table
from agentspec_kernels.linear_q import GROUP, QuantizedWeight, quantize
from safetensors import SafetensorError, safe_open

from agentspec.engine.model.errors import WeightsError

from .errors import DraftError

if TYPE_CHECKING:
    from torch import Tensor

_SCALE = "_scale"
_FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def read_config(path: Path) -> dict[str, Any]:
    """The ``config.json`` of a draft's folder. Raises ``DraftError``."""
    try:
        raw = json.loads((path / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise DraftError(f"{path / 'config.json'} cannot be read: {error}") from None
    if not isinstance(raw, dict):
        raise DraftError(f"{path / 'config.json'} is no object")
    return raw


class DraftFile:
    """An open folder. Names are without the prefix "model." that some exporters add.

    Raises ``DraftError`` where nothing can be read. The readers raise ``WeightsError`` naming a
    tensor that is missing, has another shape than it must have, is stored in a format that is not
    known here, or holds NaN or infinity.
    """

    def __init__(self, path: Path):
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise DraftError(f"{path} holds no safetensors file")
        self._where: dict[str, tuple[Any, str]] = {}
        for file in files:
            try:
                opened = safe_open(file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise DraftError(f"{file} cannot be read: {error}") from None
            for name in opened.keys():  # noqa: SIM118 (not a mapping)
                self._where[name.removeprefix("model.")] = (opened, name)

    def __contains__(self, name: str) -> bool:
        return name in self._where

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._where)

    def shape(self, name: str) -> tuple[int, ...]:
        """As stored."""
        file, stored = self._found(name)
        return tuple(file.get_slice(stored).get_shape())

    def _found(self, name: str) -> tuple[Any, str]:
        if name not in self._where:
            raise WeightsError(f"the draft lacks the tensor {name}")
        return self._where[name]

    def raw(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """As stored."""
        file, stored = self._found(name)
        tensor = file.get_tensor(stored)
        if tuple(tensor.shape) != shape:
            raise WeightsError(
                f"tensor {name} of the draft is {list(tensor.shape)}, it must be {list(shape)}"
            )
        return tensor

    def dense(self, name: str, *shape: int) -> npt.NDArray:
        """Any tensor as float32."""
        if name + _SCALE in self:
            codes, scale = self._int8(name, shape)
            return codes.astype(np.float32) * scale[:, None]
        tensor = self.raw(name, shape)
        if tensor.dtype not in _FLOATS:
            kind = str(tensor.dtype).removeprefix("torch.")
            raise WeightsError(
                f"tensor {name} of the draft is {kind}: it must be of floats (bf16, f16, f32), or "
                f"int8 with a tensor {name}{_SCALE}"
            )
        return _finite(name, np.ascontiguousarray(tensor.float().numpy()))

    def matrix(self, name: str, *shape: int) -> QuantizedWeight:
        """An [N, K] matrix for the int8 kernels; K a multiple of 32."""
        if name + _SCALE not in self:
            return quantize(self.dense(name, *shape))
        codes, scale = self._int8(name, shape)
        groups = np.repeat(scale[:, None], shape[1] // GROUP, axis=1)
        return QuantizedWeight(codes, groups.astype(np.float16), None)

    def table(self, name: str, *shape: int) -> tuple[npt.NDArray, npt.NDArray]:
        """An [N, K] table as int8 rows and float32 scales [N]."""
        if name + _SCALE in self:
            return self._int8(name, shape)
        return quantize_table(self.dense(name, *shape))

    def _int8(self, name: str, shape: tuple[int, ...]) -> tuple[npt.NDArray, npt.NDArray]:
        codes = self.raw(name, shape).numpy()
        scale = self.raw(name + _SCALE, shape[:1]).float().numpy()
        if codes.dtype != np.int8:
            raise WeightsError(f"tensor {name} of the draft has a scale, but is not int8")
        return np.ascontiguousarray(codes), _finite(name + _SCALE, scale)


def _finite(name: str, values: npt.NDArray) -> npt.NDArray:
    if not np.isfinite(values).all():
        raise WeightsError(f"tensor {name} of the draft holds NaN or infinity")
    return values
