"""A folder of safetensors files with a config.json as a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .config import ModelConfig
from .errors import UnsupportedModel, WeightsError
from .families import model_config
from .fp8 import Fp8
from .shard import Slice

_INDEX = "model.safetensors.index.json"
_TEXT = ("model.language_model.", "language_model.model.")
_PICTURES = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.")
_PICTURES += ("model.multi_modal_projector.",)
"""Where Gemma 3 with pictures keeps its text model, newer and older, and what is left out."""


class SafetensorsCheckpoint:
    """An open folder. ``config``: its shape; ``names``: its tensors.

    Raises ``UnsupportedModel`` or ``WeightsError`` when opened.
    """

    def __init__(self, path: Path):
        self.path = path
        raw = _json(path / "config.json")
        self.config: ModelConfig = model_config(raw)
        self._files: dict[str, Any] = {}
        self._file_of: dict[str, str] = {}
        self._stored: dict[str, str] = {}
        for file in _shards(path):
            try:
                self._files[file] = safe_open(path / file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise WeightsError(f"{path / file} cannot be read: {error}") from None
            self._file_of.update(dict.fromkeys(self._files[file].keys(), file))
        pictures = self.config.architecture == "gemma3"
        for name in self._file_of:
            if not (pictures and name.startswith(_PICTURES)):
                self._stored[_text(name) if pictures else name] = name
        self._fp8 = Fp8.of(raw.get("quantization_config"), self._stored)

    @property
    def names(self) -> frozenset[str]:
        scales = self._fp8.scales if self._fp8 is not None else frozenset()
        return frozenset(self._stored) - scales

    def shape(self, name: str) -> tuple[int, ...]:
        """The stored shape of ``name``."""
        return tuple(self._slice(name).get_shape())

    def read(self, name: str, part: Slice | None = None) -> Tensor:
        """The tensor ``name``, or only ``part`` of it, in its dtype; FP8 as float32."""
        stored = self._slice(name)
        if part is None:
            found = stored[:]
        elif part.dim == 0:
            found = stored[part.start : part.stop]
        else:
            found = stored[:, part.start : part.stop]
        if found.element_size() > 1:
            return found
        if self._fp8 is None:
            raise UnsupportedModel(f"tensor {name} is {found.dtype}, which config.json doesn't say")
        return self._fp8.dequantised(name, found, self.shape(name), part, lambda n: self.read(n))

    def quantized(self, name: str) -> None:
        """Float checkpoints hold no codes."""
        return None

    def _slice(self, name: str) -> Any:
        stored = self._stored[name]
        return self._files[self._file_of[stored]].get_slice(stored)


def _text(name: str) -> str:
    """The name that a tensor of the text model has in a folder without pictures."""
    for prefix in _TEXT:
        if name.startswith(prefix):
            return "model." + name.removeprefix(prefix)
    return name.removeprefix("language_model.")


def _shards(path: Path) -> list[str]:
    """The files that hold the tensors: those of the index, else every safetensors file."""
    if (path / _INDEX).is_file():
        files = sorted(set(_json(path / _INDEX).get("weight_map", {}).values()))
        outside = [file for file in files if Path(file).name != file]
        if outside:
            raise WeightsError(f"{path / _INDEX} names a file outside its folder: {outside[0]}")
    else:
        files = sorted(file.name for file in path.glob("*.safetensors"))
    if not files:
        raise WeightsError(f"{path} holds no safetensors file")
    return files


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise WeightsError(f"{path} cannot be read: {error}") from None
