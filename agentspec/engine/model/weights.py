"""From a checkpoint on disk into a model's tensors; what does not fit is an error that names it.

Read next: ``gguf_file.py`` and ``safetensors_folder.py`` (the two kinds of checkpoint).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Set
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from .config import UNSTRETCHED, Stretch
from .errors import WeightsError

if TYPE_CHECKING:
    from agentspec_kernels.linear_q import QuantizedWeight

    from .config import ModelConfig
    from .shard import Slice

_SHOWN = 4


class Checkpoint(Protocol):
    """Named tensors of one model, under the names Hugging Face gives them."""

    config: ModelConfig

    @property
    def names(self) -> frozenset[str]: ...

    def shape(self, name: str) -> tuple[int, ...]: ...

    def read(self, name: str, part: Slice | None = None) -> Tensor:
        """The tensor in half-rotation row order, dequantised; any float dtype. part: only that."""
        ...

    def quantized(self, name: str) -> QuantizedWeight | None:
        """The matrix as its group-quantised codes, or None where it isn't stored so."""
        ...


def open_checkpoint(path: Path, stretch: Stretch = UNSTRETCHED) -> Checkpoint:
    """A GGUF file or a folder of safetensors. Raises ``WeightsError`` or ``UnsupportedModel``."""
    if path.is_dir():
        from .safetensors_folder import SafetensorsCheckpoint as Kind
    else:
        from .gguf_file import GgufCheckpoint as Kind
    checkpoint = Kind(path)
    checkpoint.config = checkpoint.config.stretched(stretch)
    return checkpoint


def awaiting(*shape: int, dtype: torch.dtype, device: torch.device | str) -> Tensor:
    """A weight not loaded yet: ``shape``, all NaN, so that a forgotten one is loud."""
    return torch.full(shape, torch.nan, dtype=dtype, device=device)


def fill(
    targets: Mapping[str, Tensor],
    checkpoint: Checkpoint,
    *,
    redundant: Collection[str] = (),
    slices: Mapping[str, Slice] | None = None,
) -> None:
    """Copy every tensor of ``checkpoint`` into the target of its name, in the target's dtype.

    targets: views into the model's weights, any shape and dtype; written in place.
    redundant: names that a checkpoint may hold and the model does not need. slices: of which
    tensors only a part is wanted, and read.
    Raises ``WeightsError`` naming a missing or unexpected tensor or a wrong shape.
    """
    _check_names("missing", targets.keys() - checkpoint.names)
    _check_names("unexpected", checkpoint.names - targets.keys() - set(redundant))
    for name, target in targets.items():
        part, needed = (slices or {}).get(name), list(target.shape)
        if part is not None:
            needed[part.dim] = part.whole
        if (stored := list(checkpoint.shape(name))) != needed:
            raise WeightsError(f"tensor {name} is {stored}, the model needs {needed}")
        target.copy_(checkpoint.read(name, part))


def _check_names(what: str, names: Set[str]) -> None:
    if names:
        shown = ", ".join(sorted(names)[:_SHOWN])
        more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
        raise WeightsError(f"{what} tensor {shown}{more}")
