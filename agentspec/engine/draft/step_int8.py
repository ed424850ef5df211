"""EAGLE-3 and MTP rows as two programs of the CPU library: true rows (K and V only), and steps.

Legend: T packed rows, R rows, W wanted rows, N tapped features, E hidden size, F feed-forward size,
I inputs of the attention, H heads, J K/V heads, D head size, V vocabulary, U rows of draft logits.

Read next: ``agentspec_kernels/_cpu/program.py`` (the operations), ``step_torch.py`` (the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from agentspec_kernels._cpu.program import Pool, Program, Rows, aligned
from agentspec_kernels.linear_q import concatenate
from torch import Tensor

from agentspec.engine.model.int8_llama import PackedLinear, angles, arrange, power_of_two

from .backbone import MOST_BLOCKS, SCRATCH_PAGES
from .int8_sizes import check_sizes
from .step_backbone import StepChunk, StepRow, prefix_of, sizes
from .step_config import StepConfig
from .tables import packed_tables

if TYPE_CHECKING:
    from agentspec.engine.model.int8_llama import Int8Llama

    from .draft_file import DraftFile

_MOST_AHEAD = 64


class Int8StepBackbone:
    """A ``StepBackbone`` whose bits don't depend on the company of a row."""

    def __init__(
        self,
        config: StepConfig,
        file: DraftFile,
        target: Int8Llama,
        pool: Pool,
        ids: npt.NDArray,
        *,
        taps: int,
        num_pages: int,
        positions: int,
    ):
        """ids: [U], the token of each row of logits. taps: how many. positions: the longest
        sequence. Raises ``WeightsError`` or ``UnsupportedDraft``."""
        check_sizes(config.shape, len(ids))
        self.num_pages = num_pages
        self.config = config
        self._pool = pool
        self._weights = _Weights(config, file, target, taps, ids)
        shape = config.shape
        self._cos, self._sin = angles(shape, positions + _MOST_AHEAD)
        self._steps = Program(
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            dim=shape.head_dim,
            layers=1,
            num_pages=num_pages + SCRATCH_PAGES,
        )
        self._true = self._steps.beside()
        self._true_rows = 0
        self._reserve_steps(MOST_BLOCKS)

    def extend(self, chunks: Sequence[StepChunk]) -> Tensor:
        """See ``StepBackbone``."""
        count = sum(len(chunk.tokens) for chunk in chunks)
        if count > self._true_rows:
            self._reserve_true(power_of_two(count))
        ids: list[int] = []
        pages: list[int] = []
        spans: list[tuple[int, int, int, int]] = []
        last: list[int] = []
        for chunk in chunks:
            first, rows = len(ids), len(chunk.tokens)
            self._features[first : first + rows] = chunk.features.float().numpy()
            spans.append((first, rows, chunk.start, len(pages)))
            ids.extend(chunk.tokens)
            pages.extend(chunk.pages)
            last.append(len(ids) - 1)
        self._true.run(self._pool, _rows(ids, [], spans, pages))
        return torch.from_numpy(self._carried_true[last])

    def run(self, rows: Sequence[StepRow]) -> tuple[Tensor, Tensor]:
        """See ``StepBackbone``."""
        assert len(rows) <= MOST_BLOCKS
        pages: list[int] = []
        spans: list[tuple[int, int, int, int]] = []
        shifts: dict[int, int] = {}
        for i, row in enumerate(rows):
            self._carried[i] = row.carried.numpy()
            shifts[i] = row.position - row.slot
            spans.append((i, 1, row.slot, len(pages)))
            pages.extend(row.pages)
        wanted = [i for i, row in enumerate(rows) if row.wanted]
        self._steps.run(self._pool, _rows([r.token for r in rows], wanted, spans, pages, shifts))
        carried = self._normed if self.config.carries_normed else self._out
        return torch.from_numpy(carried[: len(rows)].copy()), torch.from_numpy(
            self._logits[: len(wanted)]
        )

    def _enter(
        self, program: Program, rows: int, carried: npt.NDArray
    ) -> tuple[npt.NDArray, npt.NDArray]:
        """carried [T, E] and the rows' tokens -> the residual stream [T, E]; the shared activations
        are then the attention's input. Returns it and the pair [T, 2E] that it was made from."""
        w, hidden, eps = self._weights, self.config.shape.hidden, self.config.shape.norm_eps
        embedded, normed = _buffer(rows, hidden), _buffer(rows, hidden)
        token, pair = _buffer(rows, hidden), _buffer(rows, 2 * hidden)
        program.embed(w.embedding, embedded)
        program.norm(embedded, w.token_norm, eps, token)
        program.norm(carried, w.carried_norm, eps, normed)
        program.tap(token, pair, 0)
        program.tap(normed, pair, hidden)
        program.quant(pair)
        if w.join is None:
            return (normed if self.config.norm_first else carried), pair
        z = _buffer(rows, hidden)
        w.join.append_to(program, z)
        program.norm_quant(z, w.attention_norm, eps)
        return z, pair

    def _reserve_true(self, rows: int) -> None:
        """The program over true rows: as far as K and V."""
        w, shape, program = self._weights, self.config.shape, self._true
        self._true_rows = rows
        self._features = _buffer(rows, w.features)
        self._carried_true = _buffer(rows, shape.hidden)
        keys_values = _buffer(rows, 2 * shape.kv_heads * shape.head_dim)
        program.clear()
        program.activations(rows, max(w.features, 2 * shape.hidden))
        if w.fc is None:
            program.norm(self._features, w.target_norm, shape.norm_eps, self._carried_true)
        else:
            program.quant(self._features)
            w.fc.append_to(program, self._carried_true)
        self._enter(program, rows, self._carried_true)
        w.kv.append_to(program, keys_values)
        if w.k_norm is not None:
            program.head_norm(keys_values, w.k_norm, shape.norm_eps, column=0, heads=shape.kv_heads)
        program.write_kv(keys_values, self._cos, self._sin, 0, column=0)

    def _reserve_steps(self, rows: int) -> None:
        """The program over steps, one row of each sequence."""
        w, shape, program = self._weights, self.config.shape, self._steps
        query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        eps = shape.norm_eps
        self._carried, self._normed = _buffer(rows, shape.hidden), _buffer(rows, shape.hidden)
        qkv, mixed = _buffer(rows, query + 2 * kv), _buffer(rows, query)
        gate_up, last = _buffer(rows, 2 * shape.ffn), _buffer(rows, shape.hidden)
        self._logits = _buffer(rows, w.head.outputs)
        program.clear()
        program.activations(rows, max(2 * shape.hidden, shape.ffn, query))
        x, _ = self._enter(program, rows, self._carried)
        self._out = x
        w.qkv.append_to(program, qkv)
        if w.q_norm is not None and w.k_norm is not None:
            program.head_norm(qkv, w.q_norm, eps, column=0, heads=shape.heads)
            program.head_norm(qkv, w.k_norm, eps, column=query, heads=shape.kv_heads)
        program.rope_write(qkv, self._cos, self._sin, 0)
        program.attend(qkv, mixed, 0)
        program.quant(mixed)
        w.out.append_to(program, x, add=True)
        program.norm_quant(x, w.ffn_norm, eps)
        w.gate_up.append_to(program, gate_up)
        program.silu_quant(gate_up)
        w.down.append_to(program, x, add=True)
        program.norm(x, w.norm, eps, self._normed)
        program.gather(self._normed, last)
        program.quant(last, gathered=True)
        w.head.append_to(program, self._logits, gathered=True)


class _Weights:
    """All weights. Which are None tells the method: ``fc`` of EAGLE-3, ``join`` (eh_proj) of MTP.

    token_norm, carried_norm: of the two halves of a pair. features: N.
    """

    def __init__(
        self,
        config: StepConfig,
        file: DraftFile,
        target: Int8Llama,
        taps: int,
        ids: npt.NDArray,
    ):
        prefix, shape = prefix_of(file), config.shape
        wanted = sizes(config, prefix, taps)

        def dense(name: str) -> npt.NDArray:
            return file.dense(name, *wanted[name])

        def linear(*names: str) -> PackedLinear:
            full = [f"{prefix}{name}_proj.weight" for name in names]
            return PackedLinear(concatenate([file.matrix(n, *wanted[n]) for n in full]))

        eagle = config.method == "eagle3"
        self.features = taps * shape.hidden
        self.fc = PackedLinear(file.matrix("fc.weight", *wanted["fc.weight"])) if eagle else None
        self.join = None
        if not eagle:
            self.join = PackedLinear(file.matrix("eh_proj.weight", *wanted["eh_proj.weight"]))
        self.attention_norm = dense(prefix + "input_layernorm.weight")
        self.token_norm = self.attention_norm if eagle else dense("enorm.weight")
        self.carried_norm = dense(prefix + "hidden_norm.weight" if eagle else "hnorm.weight")
        self.target_norm = target.final_norm
        self.norm, self.ffn_norm = (
            dense("norm.weight"),
            dense(prefix + "post_attention_layernorm.weight"),
        )
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm, self.k_norm = (dense(f"{prefix}self_attn.{n}_norm.weight") for n in "qk")
        self.qkv = linear("self_attn.q", "self_attn.k", "self_attn.v")
        self.kv = linear("self_attn.k", "self_attn.v")
        self.out, self.down = linear("self_attn.o"), linear("mlp.down")
        self.gate_up = linear("mlp.gate", "mlp.up")
        self.embedding, self.head = packed_tables(config, file, ids, target.embedding, target.head)
        first = self.fc or self.join
        assert first is not None
        arrange([first, self.kv, self.qkv, self.out, self.gate_up, self.down])


def _buffer(rows: int, width: int) -> npt.NDArray:
    return aligned((rows, width), np.float32)


def _rows(
    ids: list[int],
    wanted: list[int],
    spans: list[tuple[int, int, int, int]],
    pages: list[int],
    shifts: dict[int, int] | None = None,
) -> Rows:
    packed, gather, table = (np.array(values, np.int32) for values in (ids, wanted, pages))
    return Rows(packed, gather, spans, table, shifts=shifts or {})
