"""The header of a GGUF file: its key-value section and where each tensor lies.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md. The ``gguf`` package reads it
too, but makes several objects of every string of the vocabulary, which takes seconds; what comes
from the package are the quantised types and their dequantisation.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize

from .errors import WeightsError

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """shape: outermost dimension first (the file stores it the other way round)."""

    shape: tuple[int, ...]
    kind: GGMLQuantizationType
    offset: int
    size_bytes: int


class GgufFile:
    """An open GGUF file, mapped read-only. fields: key -> plain value; tensors: by name.

    Raises ``WeightsError`` when it cannot be understood.
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            with path.open("rb") as file:
                self._data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            cursor = _Cursor(self._data)
            tensor_count, field_count = _preamble(cursor)
            self.fields: dict[str, Any] = {}
            for _ in range(field_count):
                key = cursor.string()
                self.fields[key] = cursor.value(cursor.scalar("I"))
            alignment = self.fields.get("general.alignment", _DEFAULT_ALIGNMENT)
            self.tensors = _tensor_table(cursor, tensor_count, alignment)
        except (OSError, ValueError, KeyError, struct.error) as error:
            raise WeightsError(f"{path} is not a readable GGUF file: {error!r}") from None
        for name, info in self.tensors.items():
            if info.offset + info.size_bytes > len(self._data):
                raise WeightsError(f"{path} is cut short: tensor {name} lies beyond its end")

    def read(self, name: str) -> np.ndarray:
        """The tensor ``name`` as float32 of its own shape; a copy."""
        info = self.tensors[name]
        rows = self.raw(name).reshape(*info.shape[:-1], -1)
        return np.array(dequantize(rows, info.kind), dtype=np.float32).reshape(info.shape)

    def raw(self, name: str) -> np.ndarray:
        """The bytes of the tensor ``name`` as stored: [size] uint8, a read-only view."""
        info = self.tensors[name]
        return np.frombuffer(self._data, np.uint8, info.size_bytes, info.offset)


class _Cursor:
    """Reads little-endian values one after the other."""

    __slots__ = ("data", "at")

    def __init__(self, data: mmap.mmap):
        self.data = data
        self.at = 0

    def scalar(self, code: str) -> Any:
        layout = struct.Struct("<" + code)
        (value,) = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return value

    def take(self, size: int) -> bytes:
        found = self.data[self.at : self.at + size]
        if len(found) != size:
            raise ValueError("the file ends inside its header")
        self.at += size
        return found

    def string(self) -> str:
        return self.take(self.scalar("Q")).decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind != _ARRAY:
            return self.scalar(_SCALARS[kind])
        item, count = self.scalar("I"), self.scalar("Q")
        if item in _SCALARS:
            layout = struct.Struct(f"<{count}{_SCALARS[item]}")
            return list(layout.unpack(self.take(layout.size)))
        if item == _STRING:
            return self._strings(count)
        return [self.value(item) for _ in range(count)]

    def _strings(self, count: int) -> list[str]:
        """A vocabulary and its merges are 10^5 of them: one loop, for the sake of the start."""
        data, at, end = self.data, self.at, len(self.data)
        found: list[str] = []
        for _ in range(count):
            start = at + 8
            at = start + int.from_bytes(data[at:start], "little")
            if at > end:
                raise ValueError("the file ends inside its header")
            found.append(data[start:at].decode("utf-8", "replace"))
        self.at = at
        return found


def _preamble(cursor: _Cursor) -> tuple[int, int]:
    """How many tensors and how many fields follow."""
    if cursor.take(len(_MAGIC)) != _MAGIC:
        raise ValueError("no GGUF magic")
    version = cursor.scalar("I")
    if version not in _VERSIONS:
        raise ValueError(f"version {version} is not known")
    return cursor.scalar("Q"), cursor.scalar("Q")


def _tensor_table(cursor: _Cursor, count: int, alignment: int) -> dict[str, TensorInfo]:
    """name -> where it lies; the data section starts at the next multiple of ``alignment``."""
    found: list[tuple[str, tuple[int, ...], GGMLQuantizationType, int]] = []
    for _ in range(count):
        name = cursor.string()
        shape = tuple(cursor.scalar("Q") for _ in range(cursor.scalar("I")))
        found.append(
            (name, shape[::-1], GGMLQuantizationType(cursor.scalar("I")), cursor.scalar("Q"))
        )
    start = -(-cursor.at // alignment) * alignment
    table: dict[str, TensorInfo] = {}
    for name, shape, kind, offset in found:
        block, block_bytes = GGML_QUANT_SIZES[kind]
        size = math.prod(shape) // block * block_bytes
        table[name] = TensorInfo(shape, kind, start + offset, size)
    return table
