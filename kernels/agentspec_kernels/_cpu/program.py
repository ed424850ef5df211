"""A program for the CPU library: operations over static buffers, run once a forward pass.

Legend: T packed tokens, R gathered rows, E width of a row, P pages, J K/V heads, D head size.

``Program`` keeps every array it was given alive and holds their addresses; arrays are C-contiguous
and never move. ``run_all`` is one call that releases the GIL.
"""

from __future__ import annotations

import ctypes as c
import math
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

_EMBED, _NORM_QUANT, _QUANT, _LINEAR, _ROPE_WRITE, _ATTEND, _SILU_QUANT, _GATHER, _TAP = range(9)
_HEAD_NORM, _WRITE_KV, _NORM = range(9, 12)
_FOUR_BIT, _ADD = 1, 2
_MUTUAL = 1
_LINE = 64
PAGE = 16
"""Tokens of a K/V page: the lanes of the attention kernel."""
LONGEST_PATH = 64
"""Most rows on a path of a tree (kMaxPath)."""


class _Op(c.Structure):
    _fields_ = [
        *((name, c.c_int32) for name in ("kind", "flags", "n", "k", "layer", "logits")),
        ("f", c.c_float),
        ("reserved", c.c_int32),
        *((name, c.c_void_p) for name in ("a", "b", "c", "out")),
    ]


class _Span(c.Structure):
    _fields_ = [(name, c.c_int32) for name in ("row", "rows", "start", "pages", "tree", "shift")]


class _Batch(c.Structure):
    _fields_ = [
        *((name, c.c_int32) for name in ("tokens", "gathered", "spans", "reserved")),
        *((name, c.c_void_p) for name in ("ids", "rows", "span", "pages", "parents")),
    ]


class _Job(c.Structure):
    _fields_ = [
        *((name, c.c_void_p) for name in ("model", "ops", "batch")),
        *((name, c.c_int32) for name in ("count", "reserved")),
    ]


class _Model(c.Structure):
    _fields_ = [
        *((name, c.c_int32) for name in ("heads", "kv_heads", "dim", "num_pages")),
        *((name, c.c_void_p) for name in ("k", "v", "codes", "scale", "xsum")),
    ]


@dataclass(frozen=True, slots=True)
class Rows:
    """What one pass computes. spans: (first row, rows, first position, offset into ``pages``).

    trees: span -> offset into ``parents``, from where on each of its rows has the row that it
    follows (its number within the span, -1: the context); at most ``LONGEST_PATH`` rows on a path.
    shifts: span -> what is added to its positions to rotate it, where its page table begins in the
    middle of a text.
    """

    ids: npt.NDArray[np.int32]
    gather: npt.NDArray[np.int32]
    spans: Sequence[tuple[int, int, int, int]]
    pages: npt.NDArray[np.int32]
    parents: npt.NDArray[np.int32] = field(default_factory=lambda: np.zeros(0, np.int32))
    trees: Mapping[int, int] = field(default_factory=dict)
    shifts: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Pool:
    """Threads of a loaded library; they sleep between passes. Closed with the process."""

    library: c.CDLL
    handle: c.c_void_p = field(repr=False)

    @classmethod
    def create(cls, library: c.CDLL, threads: int) -> Pool:
        handle = library.agentspec_create(threads)
        if not handle:
            raise MemoryError("the CPU library could not start its threads")
        return cls(library, c.c_void_p(handle))


def aligned(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray:
    """Zeros whose first byte begins a cache line: a vector that crosses a line costs two reads."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size + _LINE, np.uint8)
    start = -raw.ctypes.data % _LINE
    return raw[start : start + size].view(dtype).reshape(shape)


def _part(op: _Op) -> str:
    """Which of ``Program.PARTS`` an operation belongs to."""
    if op.kind == _LINEAR:
        return "head" if op.logits else "linear"
    return "attend" if op.kind == _ATTEND else "rest"


class Program:
    """Operations appended in order; see ``OpKind`` in program.cpp for their exact meaning."""

    PARTS = ("all", "linear", "head", "attend", "rest")

    def __init__(self, *, heads: int, kv_heads: int, dim: int, layers: int, num_pages: int):
        """K/V planes [layers, P, J, D/2, 16, 2] and [layers, P, J, 8, D, 2] bf16 are made here."""
        self.num_pages = num_pages
        shape = (layers, num_pages, kv_heads)
        self.k = aligned((*shape, dim // 2, PAGE, 2), np.uint16)
        self.v = aligned((*shape, PAGE // 2, dim, 2), np.uint16)
        self._head_shape = (heads, kv_heads, dim)
        self.clear()

    def beside(self) -> Program:
        """An empty program over the same K/V planes."""
        twin = copy(self)
        twin.clear()
        return twin

    def _at(self, array: npt.NDArray | None) -> int:
        if array is None:
            return 0
        assert array.flags.c_contiguous
        self._kept.append(array)
        return array.ctypes.data

    def _add(self, kind: int, *, a=None, b=None, c=None, out=None, **fields) -> None:
        pointers = {"a": self._at(a), "b": self._at(b), "c": self._at(c), "out": self._at(out)}
        self._ops.append(_Op(kind=kind, **fields, **pointers))
        self._arrays.clear()

    def embed(self, table: npt.NDArray, out: npt.NDArray) -> None:
        """out[t] = table[ids[t]]; table [V, E], out [T, E] float32."""
        self._add(_EMBED, a=table, out=out, n=table.shape[1])

    def norm_quant(self, x: npt.NDArray, weight: npt.NDArray, eps: float, *, gathered=False):
        """The shared int8 activations = quantised rms_norm of x [T, E] float32 (or of [R, E])."""
        self._add(_NORM_QUANT, a=x, b=weight, n=weight.shape[0], f=eps, logits=int(gathered))

    def quant(self, x: npt.NDArray, *, gathered: bool = False) -> None:
        """The shared int8 activations = quantised x [T, E] float32 (or [R, E])."""
        self._add(_QUANT, a=x, n=x.shape[1], logits=int(gathered))

    def silu_quant(self, gate_up: npt.NDArray) -> None:
        """The shared int8 activations = quantised silu(gate) * up; gate_up [T, 2E] float32."""
        self._add(_SILU_QUANT, a=gate_up, n=gate_up.shape[1] // 2)

    def linear(
        self,
        packed: npt.NDArray,
        outputs: int,
        inputs: int,
        out: npt.NDArray,
        *,
        four_bit: bool,
        add: bool = False,
        gathered: bool = False,
    ) -> None:
        """out [T, N] float32 = (or +=) packed weights times the shared activations; N % 16 == 0."""
        assert outputs % 16 == 0 and inputs % 32 == 0 and out.shape[1] == outputs
        flags = (_FOUR_BIT if four_bit else 0) | (_ADD if add else 0)
        fields = {"flags": flags, "n": outputs, "k": inputs, "logits": int(gathered)}
        self._add(_LINEAR, a=packed, out=out, **fields)

    def rope_write(self, qkv: npt.NDArray, cos: npt.NDArray, sin: npt.NDArray, layer: int) -> None:
        """Rotate q and k of qkv [T, (H+2J)*D] by cos, sin [positions, D/2]; write k, v; scale q."""
        self._add(_ROPE_WRITE, a=qkv, b=cos, c=sin, layer=layer)

    def attend(
        self, qkv: npt.NDArray, out: npt.NDArray, layer: int, *, mutual: bool = False
    ) -> None:
        """out [T, H*D] float32 = causal attention of the rotated q over the pages.

        mutual: every row of a span sees all rows of the span, too.
        """
        self._add(_ATTEND, a=qkv, out=out, layer=layer, flags=_MUTUAL if mutual else 0)

    def head_norm(
        self, x: npt.NDArray, weight: npt.NDArray, eps: float, *, column: int, heads: int
    ) -> None:
        """rms_norm of each of the heads from ``column`` on, in place; x [T, E], weight [D]."""
        fields = {"n": x.shape[1], "k": heads, "layer": column, "f": eps}
        self._add(_HEAD_NORM, a=x, b=weight, **fields)

    def write_kv(
        self, x: npt.NDArray, cos: npt.NDArray, sin: npt.NDArray, layer: int, *, column: int
    ) -> None:
        """Rotate the keys (J*D numbers from ``column`` on) of x [T, E]; write them and the values
        (as many, behind them) to the layer's pages."""
        self._add(_WRITE_KV, a=x, b=cos, c=sin, n=x.shape[1], k=column, layer=layer)

    def norm(
        self,
        x: npt.NDArray,
        weight: npt.NDArray,
        eps: float,
        out: npt.NDArray,
        *,
        gathered: bool = False,
    ) -> None:
        """out = rms_norm of x, both [T, E] (or [R, E]) float32."""
        self._add(_NORM, a=x, b=weight, out=out, n=x.shape[1], f=eps, logits=int(gathered))

    def gather(self, x: npt.NDArray, out: npt.NDArray) -> None:
        """out[r] = x[gather[r]]; x [T, E], out [R, E] float32."""
        self._add(_GATHER, a=x, out=out, n=x.shape[1], logits=1)

    def tap(self, x: npt.NDArray, out: npt.NDArray, column: int) -> None:
        """out[t, column : column + E] = x[t]; x [T, E], out [T, N] float32."""
        self._add(_TAP, a=x, out=out, n=x.shape[1], k=out.shape[1], layer=column)

    def activations(self, rows: int, widest: int) -> None:
        """Make the shared buffers of int8 activations for ``rows`` rows of ``widest`` inputs."""
        heads, kv_heads, dim = self._head_shape
        codes = aligned((rows * widest,), np.int8)
        scale, xsum = (aligned((rows * widest // 32,), np.float32) for _ in range(2))
        arrays = (self.k, self.v, codes, scale, xsum)
        pointers = [self._at(array) for array in arrays]
        self._model = _Model(heads, kv_heads, dim, self.num_pages, *pointers)

    def move(self, pages: Sequence[int], moves: Sequence[tuple[int, int]]) -> None:
        """K and V of slot ``to`` become those of slot ``source``, in all layers, in this order.

        moves: (source, to); slot s is number s % 16 of page ``pages[s // 16]``.
        """
        for source, to in moves:
            (a, i), (b, j) = ((pages[slot // PAGE], slot % PAGE) for slot in (source, to))
            self.k[:, b, :, :, j] = self.k[:, a, :, :, i]
            self.v[:, b, :, j // 2, :, j % 2] = self.v[:, a, :, i // 2, :, i % 2]

    def clear(self) -> None:
        """Forget all operations; the K/V planes stay."""
        self._ops: list[_Op] = []
        self._kept: list[npt.NDArray] = []
        self._arrays: dict[str, c.Array[_Op]] = {}

    def run(self, pool: Pool, rows: Rows, part: str = "all") -> None:
        """Run all operations for the given rows. Raises ``MemoryError``.

        part: one of ``PARTS``; anything but "all" is for measuring and computes nonsense.
        """
        run_all(pool, [(self, rows)], part)

    def _job(self, rows: Rows, part: str) -> tuple[_Job, object]:
        """What the library is told, and what it points to, which has to live as long."""
        if part not in self._arrays:
            chosen = [op for op in self._ops if part in ("all", _part(op))]
            self._arrays[part] = (_Op * len(chosen))(*chosen)
        ops, trees, shifts = self._arrays[part], rows.trees, rows.shifts
        spans = (_Span * len(rows.spans))(
            *[(*span, trees.get(i, -1), shifts.get(i, 0)) for i, span in enumerate(rows.spans)]
        )
        batch = _Batch(
            len(rows.ids),
            len(rows.gather),
            len(rows.spans),
            0,
            rows.ids.ctypes.data,
            rows.gather.ctypes.data,
            c.addressof(spans),
            rows.pages.ctypes.data,
            rows.parents.ctypes.data,
        )
        job = _Job(c.addressof(self._model), c.addressof(ops), c.addressof(batch), len(ops), 0)
        return job, (ops, spans, batch)


def run_all(pool: Pool, passes: Sequence[tuple[Program, Rows]], part: str = "all") -> None:
    """Run programs one after the other, in one call: the pool's threads are woken once.

    part: see ``Program.run``. Raises ``MemoryError``.
    """
    told = [program._job(rows, part) for program, rows in passes]
    jobs = [job for job, _ in told if job.count]
    if not jobs:
        return
    table = (_Job * len(jobs))(*jobs)
    if pool.library.agentspec_run(pool.handle, c.addressof(table), len(jobs)):
        raise MemoryError("the CPU library has no memory for attention partials")
