"""Packing of group-quantised weights for ``cpu.h``: Q4_1 as it lies in a GGUF file, and Q8_0.

Legend: N outputs, K inputs, G = K / 32 groups, B = ceil(N / 16) blocks of output rows.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

GROUP = 32
ROWS = 16


@dataclass(frozen=True, slots=True)
class QuantizedWeight:
    """Codes and scales of one matrix: weight[n, k] = d[n, g] * codes[n, k] + m[n, g], g = k // 32.

    codes: [N, K]; uint8 0..15 when ``four_bit``, else int8. d: [N, G] float16.
    m: [N, G] float16 when ``four_bit``, else None (zero).
    """

    codes: npt.NDArray
    d: npt.NDArray
    m: npt.NDArray | None

    @property
    def four_bit(self) -> bool:
        return self.m is not None

    def rows(self, order: npt.NDArray) -> QuantizedWeight:
        """The same matrix with its output rows in another order."""
        return QuantizedWeight(
            self.codes[order], self.d[order], None if self.m is None else self.m[order]
        )

    def dense(self) -> npt.NDArray:
        """[N, K] float32: what the codes stand for."""
        n, k = self.codes.shape
        dense = self.codes.reshape(n, k // GROUP, GROUP).astype(np.float32)
        dense *= self.d.astype(np.float32)[..., None]
        if self.m is not None:
            dense += self.m.astype(np.float32)[..., None]
        return dense.reshape(n, k)


def concatenate(parts: list[QuantizedWeight]) -> QuantizedWeight:
    """Several matrices over the same inputs as one (q, k and v; gate and up)."""
    four = parts[0].four_bit
    assert all(part.four_bit == four for part in parts)
    return QuantizedWeight(
        np.concatenate([part.codes for part in parts]),
        np.concatenate([part.d for part in parts]),
        np.concatenate([part.m for part in parts if part.m is not None]) if four else None,
    )


def from_q4_1(raw: npt.NDArray, n: int, k: int) -> QuantizedWeight:
    """GGUF Q4_1 blocks (20 bytes: fp16 d, fp16 m, 16 bytes of nibbles) of an [N, K] matrix."""
    blocks = np.ascontiguousarray(raw).view(np.uint8).reshape(n, k // GROUP, 20)
    d = blocks[..., 0:2].copy().view(np.float16)[..., 0]
    m = blocks[..., 2:4].copy().view(np.float16)[..., 0]
    nibbles = blocks[..., 4:]
    codes = np.concatenate([nibbles & 15, nibbles >> 4], axis=-1).reshape(n, k)
    return QuantizedWeight(codes, d, m)


def from_q8_0(raw: npt.NDArray, n: int, k: int) -> QuantizedWeight:
    """GGUF Q8_0 blocks (34 bytes: fp16 d, 32 int8) of an [N, K] matrix."""
    blocks = np.ascontiguousarray(raw).view(np.uint8).reshape(n, k // GROUP, 34)
    d = blocks[..., 0:2].copy().view(np.float16)[..., 0]
    return QuantizedWeight(blocks[..., 2:].copy().view(np.int8).reshape(n, k), d, None)


def quantize(dense: npt.NDArray) -> QuantizedWeight:
    """Any [N, K] float matrix as Q8_0: one fp16 scale for each 32 inputs, codes -127..127."""
    n, k = dense.shape
    grouped = dense.astype(np.float32).reshape(n, k // GROUP, GROUP)
    d = (np.abs(grouped).max(-1) / 127).astype(np.float16)
    inverse = np.divide(1, d.astype(np.float32), where=d > 0, out=np.zeros(d.shape, np.float32))
    codes = np.clip(np.rint(grouped * inverse[..., None]), -127, 127).astype(np.int8)
    return QuantizedWeight(codes.reshape(n, k), d, None)


def quantize4(dense: npt.NDArray) -> QuantizedWeight:
    """Any [N, K] float matrix as Q4_1: for each 32 inputs 16 steps from least to greatest."""
    n, k = dense.shape
    grouped = dense.astype(np.float32).reshape(n, k // GROUP, GROUP)
    low = grouped.min(-1)
    d = ((grouped.max(-1) - low) / 15).astype(np.float16)
    m = low.astype(np.float16)
    step = d.astype(np.float32)
    inverse = np.divide(1, step, where=step > 0, out=np.zeros_like(step))
    grouped = (grouped - m.astype(np.float32)[..., None]) * inverse[..., None]
    codes = np.clip(np.rint(grouped), 0, 15).astype(np.uint8)
    return QuantizedWeight(codes.reshape(n, k), d, m)


def pack(weight: QuantizedWeight) -> npt.NDArray:
    """[B * G * record] uint8 in the layout of ``cpu.h``; N is padded to 16 with zeros."""
    n, k = weight.codes.shape
    groups, blocks = k // GROUP, -(-n // ROWS)
    scale = _lanes(weight.d, blocks)
    codes = np.zeros((blocks * ROWS, k), np.uint8)
    if weight.m is not None:
        codes[:n] = weight.codes
        halves = codes.reshape(blocks, ROWS, groups, 4, 2, 4).transpose(0, 2, 4, 3, 1, 5)
        body = (halves[:, :, 0] | (halves[:, :, 1] << 4)).reshape(blocks, groups, 256)
        parts = [body, scale, _lanes(weight.m, blocks)]
    else:
        codes[:n] = (weight.codes.astype(np.int16) + 128).astype(np.uint8)
        codes[n:] = 128
        body = codes.reshape(blocks, ROWS, groups, 8, 4).transpose(0, 2, 3, 1, 4)
        parts = [body.reshape(blocks, -1), scale.reshape(blocks, -1)]
    return np.ascontiguousarray(np.concatenate(parts, axis=-1)).reshape(-1)


def unpack(packed: npt.NDArray, n: int, k: int, *, four_bit: bool) -> QuantizedWeight:
    """The matrix that ``pack`` packed, [N, K]."""
    groups, blocks = k // GROUP, -(-n // ROWS)
    if four_bit:
        records = packed.reshape(blocks, groups, 320)
        body, scales = records[..., :256], records[..., 256:].reshape(blocks, groups, 2, 32)
        halves = body.reshape(blocks, groups, 4, ROWS, 4)
        codes = np.stack([halves & 15, halves >> 4], axis=3).transpose(0, 4, 1, 2, 3, 5)
        d, m = _rows(scales[:, :, 0], n), _rows(scales[:, :, 1], n)
        return QuantizedWeight(np.ascontiguousarray(codes.reshape(-1, k)[:n]), d, m)
    table = packed.reshape(blocks, groups * 544)
    body = table[:, : groups * 512].reshape(blocks, groups, 8, ROWS, 4)
    codes = body.transpose(0, 3, 1, 2, 4).reshape(-1, k)[:n].astype(np.int16) - 128
    scales = table[:, groups * 512 :].reshape(blocks, groups, 32)
    return QuantizedWeight(codes.astype(np.int8), _rows(scales, n), None)


def _rows(lanes: npt.NDArray, n: int) -> npt.NDArray:
    """[B, G, 32] bytes -> [N, G] float16: what ``_lanes`` was given."""
    scale = np.ascontiguousarray(lanes).view(np.float16).transpose(0, 2, 1)
    return np.ascontiguousarray(scale.reshape(-1, scale.shape[2])[:n])


def _lanes(scale: npt.NDArray, blocks: int) -> npt.NDArray:
    """[N, G] float16 -> [B, G, 32] bytes: the sixteen rows' scales of each group side by side."""
    n, groups = scale.shape
    padded = np.zeros((blocks * ROWS, groups), np.float16)
    padded[:n] = scale
    lanes = padded.reshape(blocks, ROWS, groups).transpose(0, 2, 1)
    return np.ascontiguousarray(lanes).view(np.uint8).reshape(blocks, groups, 32)
