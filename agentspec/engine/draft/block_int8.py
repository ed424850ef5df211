"""A block draft's layers as two programs of the CPU library: context rows, and blocks.

Legend: T packed rows, R wanted rows, N tapped features, E hidden size, F feed-forward size, H
heads, J K/V heads, D head size, L draft layers, V vocabulary, U rows of draft logits.

Read next: ``agentspec_kernels/_cpu/program.py`` (the operations), ``block_torch.py`` (the same).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from agentspec_kernels._cpu.program import Pool, Program, Rows, aligned, run_all
from agentspec_kernels.linear_q import QuantizedWeight, concatenate

from agentspec.engine.model.int8_llama import PackedLinear, angles, arrange, power_of_two

from .backbone import MOST_BLOCKS, PAGE, SCRATCH_PAGES, Block, Chunk
from .block_config import MOST_ROWS, BlockConfig
from .draft_file import DraftFile
from .int8_sizes import check_sizes
from .tables import packed_tables

if TYPE_CHECKING:
    from agentspec.engine.model.int8_llama import Int8Llama


class Int8Backbone:
    """A ``Backbone`` whose bits don't depend on the company of a row, as the target's don't."""

    def __init__(
        self,
        config: BlockConfig,
        file: DraftFile,
        target: Int8Llama,
        pool: Pool,
        ids: npt.NDArray,
        *,
        num_pages: int,
        positions: int,
        bits: int = 8,
    ):
        """ids: [U], the token of each row of logits. positions: the longest sequence. bits: 8 or 4
        a weight of the layers and the head (``fc`` has 8).

        Raises ``WeightsError`` or ``UnsupportedDraft``.
        """
        check_sizes(config.shape, len(ids))
        self.num_pages = num_pages
        self.config = config
        self._pool = pool
        self._weights = _Weights(config, file, target, ids, bits)
        self._cos, self._sin = angles(config.shape, positions + MOST_ROWS)
        shape = config.shape
        self._block = Program(
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            dim=shape.head_dim,
            layers=shape.layers,
            num_pages=num_pages + SCRATCH_PAGES,
        )
        self._context = self._block.beside()
        self._context_rows = self._block_rows = 0

    def extend(self, chunks: Sequence[Chunk]) -> None:
        """See ``Backbone``."""
        run_all(self._pool, [(self._context, self._context_pass(chunks))])

    def run(
        self, blocks: Sequence[Block], chunks: Sequence[Chunk] = ()
    ) -> tuple[npt.NDArray, npt.NDArray]:
        """See ``Backbone``."""
        assert len(blocks) <= MOST_BLOCKS
        passes = [(self._context, self._context_pass(chunks))] if chunks else []
        rows = self._block_pass(blocks)
        run_all(self._pool, [*passes, (self._block, rows)])
        wanted = len(rows.gather)
        return self._hidden[:wanted], self._logits[:wanted]

    def _context_pass(self, chunks: Sequence[Chunk]) -> Rows:
        """Rows over the pages that they are written to, and no others."""
        count = sum(chunk.features.shape[0] for chunk in chunks)
        if count > self._context_rows:
            self._reserve_context(power_of_two(count))
        spans, pages, first = [], [], 0
        for chunk in chunks:
            rows = chunk.features.shape[0]
            self._features[first : first + rows] = chunk.features.float().numpy()
            skipped = chunk.start // PAGE
            spans.append((first, rows, chunk.start, len(pages) - skipped))
            pages.extend(chunk.pages[skipped : (chunk.start + rows - 1) // PAGE + 1])
            first += rows
        # The ids are not looked at: how many there are is how many rows run.
        return _rows([0] * count, [], spans, pages)

    def _block_pass(self, blocks: Sequence[Block]) -> Rows:
        spans, pages, ids, wanted = [], [], [], []
        shifts: dict[int, int] = {}
        for block in blocks:
            shifts[len(spans)] = block.position - block.context
            spans.append((len(ids), len(block.ids), block.context, len(pages)))
            wanted.extend(len(ids) + row for row in block.rows)
            ids.extend(block.ids)
            pages.extend(block.pages)
        if len(ids) > self._block_rows:
            self._reserve_block(power_of_two(len(ids)))
        return _rows(ids, wanted, spans, pages, shifts)

    def _reserve_context(self, rows: int) -> None:
        """The program over context rows: fc, norm, then K and V of every layer at once."""
        config, weights, program = self.config, self._weights, self._context
        shape = config.shape
        kv = shape.kv_heads * shape.head_dim
        self._context_rows = rows
        self._features = aligned((rows, weights.fc.inputs), np.float32)
        h = aligned((rows, shape.hidden), np.float32)
        keys_values = aligned((rows, shape.layers * 2 * kv), np.float32)
        program.clear()
        program.activations(rows, max(weights.fc.inputs, shape.hidden))
        program.quant(self._features)
        weights.fc.append_to(program, h)
        program.norm_quant(h, weights.hidden_norm, shape.norm_eps)
        weights.kv.append_to(program, keys_values)
        for index, layer in enumerate(weights.layers):
            column = index * 2 * kv
            if layer.k_norm is not None:
                program.head_norm(
                    keys_values, layer.k_norm, shape.norm_eps, column=column, heads=shape.kv_heads
                )
            program.write_kv(keys_values, self._cos, self._sin, index, column=column)

    def _reserve_block(self, rows: int) -> None:
        """The program over block rows: embedding, layers, norm, logits."""
        config, weights, program = self.config, self._weights, self._block
        shape = config.shape
        query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
        self._block_rows = rows

        def buffer(width: int) -> npt.NDArray:
            return aligned((rows, width), np.float32)

        x, qkv, mixed = buffer(shape.hidden), buffer(query + 2 * kv), buffer(query)
        gate_up, last = buffer(2 * shape.ffn), buffer(shape.hidden)
        self._hidden, self._logits = buffer(shape.hidden), buffer(weights.head.outputs)
        program.clear()
        program.activations(rows, max(shape.hidden, shape.ffn, query))
        program.embed(weights.embedding, x)
        for index, layer in enumerate(weights.layers):
            program.norm_quant(x, layer.attention_norm, shape.norm_eps)
            layer.qkv.append_to(program, qkv)
            if layer.q_norm is not None and layer.k_norm is not None:
                eps = shape.norm_eps
                program.head_norm(qkv, layer.q_norm, eps, column=0, heads=shape.heads)
                program.head_norm(qkv, layer.k_norm, eps, column=query, heads=shape.kv_heads)
            program.rope_write(qkv, self._cos, self._sin, index)
            program.attend(qkv, mixed, index, mutual=not config.causal)
            program.quant(mixed)
            layer.out.append_to(program, x, add=True)
            program.norm_quant(x, layer.ffn_norm, shape.norm_eps)
            layer.gate_up.append_to(program, gate_up)
            program.silu_quant(gate_up)
            layer.down.append_to(program, x, add=True)
        program.gather(x, last)
        program.norm(last, weights.norm, shape.norm_eps, self._hidden, gathered=True)
        program.quant(self._hidden, gathered=True)
        weights.head.append_to(program, self._logits, gathered=True)


def _rows(
    ids: list[int],
    wanted: list[int],
    spans: list[tuple[int, int, int, int]],
    pages: list[int],
    shifts: dict[int, int] | None = None,
) -> Rows:
    packed, gather, table = (np.array(values, np.int32) for values in (ids, wanted, pages))
    return Rows(packed, gather, spans, table, shifts=shifts or {})


class _Layer:
    """The weights of one draft layer; norms of q and k are None where it has none."""

    def __init__(self, config: BlockConfig, file: DraftFile, index: int, bits: int):
        shape, prefix = config.shape, f"layers.{index}."
        hidden, dim = shape.hidden, shape.head_dim
        query, kv = shape.heads * dim, shape.kv_heads * dim
        attention = prefix + "self_attn."
        q, k, v = (
            file.matrix(f"{attention}{name}_proj.weight", rows, hidden)
            for name, rows in (("q", query), ("k", kv), ("v", kv))
        )
        self.kv_parts = [k, v]
        self.qkv = _packed([q, k, v], bits)
        self.out = _packed([file.matrix(attention + "o_proj.weight", hidden, query)], bits)
        self.q_norm = self.k_norm = None
        if config.qk_norm:
            self.q_norm = file.dense(attention + "q_norm.weight", dim)
            self.k_norm = file.dense(attention + "k_norm.weight", dim)
        self.attention_norm = file.dense(prefix + "input_layernorm.weight", hidden)
        self.ffn_norm = file.dense(prefix + "post_attention_layernorm.weight", hidden)
        gate, up = (
            file.matrix(f"{prefix}mlp.{name}_proj.weight", shape.ffn, hidden)
            for name in ("gate", "up")
        )
        self.gate_up = _packed([gate, up], bits)
        self.down = _packed([file.matrix(prefix + "mlp.down_proj.weight", hidden, shape.ffn)], bits)


class _Weights:
    """All weights. embedding [V, E] and head E -> U are the target's where the draft has none."""

    def __init__(
        self, config: BlockConfig, file: DraftFile, target: Int8Llama, ids: npt.NDArray, bits: int
    ):
        shape = config.shape
        hidden = shape.hidden
        self.fc = PackedLinear(file.matrix("fc.weight", hidden, len(config.taps) * hidden))
        self.hidden_norm = file.dense("hidden_norm.weight", hidden)
        self.norm = file.dense("norm.weight", hidden)
        self.layers = [_Layer(config, file, index, bits) for index in range(shape.layers)]
        self.kv = _packed([part for layer in self.layers for part in layer.kv_parts], bits)
        for layer in self.layers:
            layer.kv_parts.clear()
        self.embedding, self.head = packed_tables(config, file, ids, target.embedding, target.head)
        if bits == 4:
            self.head = self.head.in_four_bits()
        layers = [(layer.qkv, layer.out, layer.gate_up, layer.down) for layer in self.layers]
        arrange([self.fc, self.kv, *(linear for layer in layers for linear in layer)])


def _packed(parts: list[QuantizedWeight], bits: int) -> PackedLinear:
    packed = PackedLinear(concatenate(parts))
    return packed.in_four_bits() if bits == 4 else packed
