"""A folder of safetensors files with a config.json as a checkpoint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from .config import ModelConfig, from_huggingface
from .errors import WeightsError

_INDEX = "model.safetensors.index.json"


class SafetensorsCheckpoint:
    """An open folder. ``config``: its shape; ``names``: its tensors.

    Raises ``UnsupportedModel`` or ``WeightsError`` when opened.
    """

    def __init__(self, path: Path):
        self.path = path
        self.config: ModelConfig = from_huggingface(_json(path / "config.json"))
        self._files: dict[str, Any] = {}
        self._file_of: dict[str, str] = {}
        for file in _shards(path):
            try:
                self._files[file] = safe_open(path / file, framework="pt")
            except (OSError, SafetensorError) as error:
                raise WeightsError(f"{path / file} cannot be read: {error}") from None
            self._file_of.update(dict.fromkeys(self._files[file].keys(), file))

    @property
    def names(self) -> frozenset[str]:
        return frozenset(self._file_of)

    def read(self, name: str) -> Tensor:
        """The tensor ``name`` in its stored shape and dtype."""
        return self._files[self._file_of[name]].get_tensor(name)

    def quantized(self, name: str) -> None:
        """Float checkpoints hold no codes."""
        return None


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
