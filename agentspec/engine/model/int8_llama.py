"""Llama as a program of the CPU library: weights as stored, int8 activations, exact integer sums.

Legend: T packed tokens, R rows whose logits are wanted, V vocabulary, E hidden size, F feed-forward
size, H heads, J K/V heads, D head size, A tapped layers.

Read next: ``agentspec_kernels/_cpu/program.py`` (the operations).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
import numpy.typing as npt
from agentspec_kernels._cpu.program import Pool, Program, Rows, aligned
from agentspec_kernels.linear_q import (
    GROUP,
    ROWS,
    QuantizedWeight,
    concatenate,
    pack,
    quantize,
    quantize4,
    unpack,
)

from .config import ModelConfig, checked_taps
from .errors import UnsupportedModel
from .rope import turns
from .weights import Checkpoint

_WIDEST_ROW = 16384
_LAYER = "model.layers.{}."


class Int8Llama:
    """A loaded model with its K/V pages; ``forward`` fills ``logits`` and ``features``.

    logits: [R capacity, V] float32. features: [T capacity, A*E] float32 or None. Both are reused by
    the next pass. Raises ``UnsupportedModel`` or ``WeightsError``.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        num_pages: int,
        positions: int,
        taps: Sequence[int] = (),
        rows: int = 64,
    ):
        """positions: longest sequence; rows: first capacity for tokens of a pass (it grows)."""
        self.config = config = checkpoint.config
        _check(config)
        self._taps = checked_taps(taps, config)
        self._weights = _Weights(checkpoint)
        self._cos, self._sin = angles(config, positions)
        self._program = Program(
            heads=config.heads,
            kv_heads=config.kv_heads,
            dim=config.head_dim,
            layers=config.layers,
            num_pages=num_pages,
        )
        self._capacity = (0, 0)
        self._reserve(rows, 1)

    @property
    def embedding(self) -> npt.NDArray:
        """[V, E] float32, not to be changed."""
        return self._weights.embedding

    @property
    def head(self) -> PackedLinear:
        """lm_head, E -> V."""
        return self._weights.head

    @property
    def final_norm(self) -> npt.NDArray:
        """[E] float32: the weight of the norm before lm_head, not to be changed."""
        return self._weights.norm

    def set_taps(self, taps: Sequence[int]) -> None:
        """The layers (from 0) whose outputs are features. Raises ``ValueError``."""
        self._taps = checked_taps(taps, self.config)
        self._reserve(*self._capacity)

    def forward(
        self, pool: Pool, rows: Rows, part: str = "all"
    ) -> tuple[npt.NDArray, npt.NDArray | None]:
        """logits [R, V] and features [T, A*E] (or None) of one pass, as views."""
        tokens, wanted = len(rows.ids), len(rows.gather)
        if tokens > self._capacity[0] or wanted > self._capacity[1]:
            self._reserve(
                max(self._capacity[0], power_of_two(tokens)),
                max(self._capacity[1], power_of_two(wanted)),
            )
        self._program.run(pool, rows, part)
        features = None if self.features is None else self.features[:tokens]
        return self.logits[:wanted], features

    def move(self, pages: Sequence[int], moves: Sequence[tuple[int, int]]) -> None:
        """Move K/V between slots of a sequence: see ``Program.move``."""
        self._program.move(pages, moves)

    def _reserve(self, tokens: int, wanted: int) -> None:
        """Make static buffers for that many rows and the program over them."""
        config, weights, program = self.config, self._weights, self._program
        query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim

        def buffer(rows: int, width: int) -> npt.NDArray:
            return aligned((rows, width), np.float32)

        self._capacity = (tokens, wanted)
        self.logits = buffer(wanted, weights.head.outputs)
        self.features = buffer(tokens, len(self._taps) * config.hidden) if self._taps else None
        x, qkv, attended = (buffer(tokens, n) for n in (config.hidden, query + 2 * kv, query))
        gate_up, last = buffer(tokens, 2 * config.ffn), buffer(wanted, config.hidden)
        program.clear()
        program.activations(max(tokens, wanted), max(config.hidden, config.ffn, query))
        program.embed(weights.embedding, x)
        for index, layer in enumerate(weights.layers):
            program.norm_quant(x, layer.attention_norm, config.norm_eps)
            layer.qkv.append_to(program, qkv)
            program.rope_write(qkv, self._cos, self._sin, index)
            program.attend(qkv, attended, index)
            program.quant(attended)
            layer.out.append_to(program, x, add=True)
            program.norm_quant(x, layer.ffn_norm, config.norm_eps)
            layer.gate_up.append_to(program, gate_up)
            program.silu_quant(gate_up)
            layer.down.append_to(program, x, add=True)
            if index in self._taps and self.features is not None:
                program.tap(x, self.features, self._taps.index(index) * config.hidden)
        program.gather(x, last)
        program.norm_quant(last, weights.norm, config.norm_eps, gathered=True)
        weights.head.append_to(program, self.logits, gathered=True)


class PackedLinear:
    """One packed matrix."""

    def __init__(self, weight: QuantizedWeight):
        self.outputs, self.inputs = weight.codes.shape
        self._four_bit = weight.four_bit
        self.packed = pack(weight)

    def first(self, outputs: int) -> PackedLinear:
        """Only the first rows, a multiple of 16; shares memory."""
        assert outputs % ROWS == 0 and 0 < outputs <= self.outputs
        twin = copy(self)
        twin.outputs = outputs
        blocks = -(-self.outputs // ROWS)
        twin.packed = self.packed[: self.packed.nbytes // blocks * (outputs // ROWS)]
        return twin

    def rows(self, ids: npt.NDArray) -> PackedLinear:
        """A copy of the rows of these numbers, in this order."""
        whole = unpack(self.packed, self.outputs, self.inputs, four_bit=self._four_bit)
        return PackedLinear(whole.rows(ids))

    def in_four_bits(self) -> PackedLinear:
        """The same matrix to 4 bits a weight; itself where it has no more."""
        if self._four_bit:
            return self
        whole = unpack(self.packed, self.outputs, self.inputs, four_bit=False)
        return PackedLinear(quantize4(whole.dense()))

    def append_to(self, program: Program, out: npt.NDArray, *, add=False, gathered=False) -> None:
        program.linear(
            self.packed,
            self.outputs,
            self.inputs,
            out,
            four_bit=self._four_bit,
            add=add,
            gathered=gathered,
        )


def arrange(linears: Sequence[PackedLinear]) -> None:
    """Move packed matrices into one allocation, in the order of a pass.

    One of many megabytes gets huge pages from the system, and every matrix begins a cache line.
    """
    places = [-(-linear.packed.nbytes // 64) * 64 for linear in linears]
    arena, start = aligned((sum(places),), np.uint8), 0
    for linear, size in zip(linears, places, strict=True):
        place = arena[start : start + linear.packed.nbytes]
        place[:] = linear.packed
        linear.packed, start = place, start + size


class _Layer:
    """The weights of one decoder layer."""

    def __init__(self, source: _Weights, index: int):
        prefix = _LAYER.format(index)
        self.attention_norm = source.vector(prefix + "input_layernorm.weight")
        self.ffn_norm = source.vector(prefix + "post_attention_layernorm.weight")
        self.qkv = source.fused(*(f"{prefix}self_attn.{name}_proj.weight" for name in "qkv"))
        self.out = source.fused(f"{prefix}self_attn.o_proj.weight")
        self.gate_up = source.fused(*(f"{prefix}mlp.{n}_proj.weight" for n in ("gate", "up")))
        self.down = source.fused(f"{prefix}mlp.down_proj.weight")


class _Weights:
    """All weights: 4- and 8-bit GGUF tensors bit for bit, anything else quantised to 8 bits."""

    def __init__(self, checkpoint: Checkpoint):
        self._checkpoint = checkpoint
        config = checkpoint.config
        table = self._matrix("model.embed_tokens.weight")
        self.embedding = table.dense()
        self.head = PackedLinear(table if config.tied else self._matrix("lm_head.weight"))
        self.norm = self.vector("model.norm.weight")
        self.layers = [_Layer(self, index) for index in range(config.layers)]
        layers = [(layer.qkv, layer.out, layer.gate_up, layer.down) for layer in self.layers]
        arrange([*(linear for layer in layers for linear in layer), self.head])

    def vector(self, name: str) -> npt.NDArray:
        return np.ascontiguousarray(self._checkpoint.read(name).float().numpy())

    def fused(self, *names: str) -> PackedLinear:
        parts = [self._matrix(name) for name in names]
        if len({part.four_bit for part in parts}) > 1:
            parts = [quantize(part.dense()) for part in parts]
        return PackedLinear(concatenate(parts))

    def _matrix(self, name: str) -> QuantizedWeight:
        stored = self._checkpoint.quantized(name)
        return stored or quantize(self._checkpoint.read(name).float().numpy())


def _check(config: ModelConfig) -> None:
    """Raise ``UnsupportedModel`` where a size does not fit the kernels' groups and lanes."""
    sizes = {
        "hidden size": config.hidden,
        "feed-forward size": config.ffn,
        "head size": config.head_dim,
    }
    for name, size in sizes.items():
        if size % GROUP:
            raise UnsupportedModel(f"{name} {size} is not a multiple of {GROUP} (int8 kernels)")
    if config.vocab % 16 or config.head_dim > 256 or max(config.hidden, config.ffn) > _WIDEST_ROW:
        raise UnsupportedModel("the int8 kernels don't support this model's sizes")


def angles(config: ModelConfig, positions: int) -> tuple[npt.NDArray, npt.NDArray]:
    """cos and sin, [positions, D/2] float32 from float64 angles."""
    cos, sin = turns(config, positions)
    return cos.astype(np.float32), sin.astype(np.float32)


def power_of_two(count: int) -> int:
    return 1 << max(0, count - 1).bit_length()
