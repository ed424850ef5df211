"""How long a pass takes: the slower of reading its bytes and doing its operations, and overheads.

No measurement of this project stands behind it (it never ran on these GPUs). The constants below
are assumptions in round numbers, set with a few published measurements in view; ``anchors.py`` says
how far those, and others that were not looked at, are from what comes out.
"""

from __future__ import annotations

from dataclasses import dataclass

from .drafts import Draft
from .hardware import Gpu
from .shape import Shape

MEMORY_SHARE = 0.75
"""Of the published bandwidth, what a stream of weights gets."""
COMPUTE_SHARE = 0.6
"""Of the published tensor throughput, what large products get."""
LAYER_S = 15e-6
"""Beside its bytes, a layer's kernels under CUDA graphs."""
MOE_LAYER_S = 40e-6
"""What a layer with experts takes more: routing, sorting rows, many small products."""
ROUND_S = 5e-3
"""What a round of speculation takes in real engines beyond its bytes and operations, at most:
6 ms in vLLM on one H100 (a public lab: 15.1 ms a round of Qwen3-8B with DSpark, plain 7.3), 4 ms in
SGLang on eight B300 (383.7 tokens a second at 5 accepted, 7.3 ms of verifying). The lower estimates
hold it, the higher ones don't."""
STEP_S = 0.5e-3
"""A step of an engine: sampling, metadata, the host."""
REDUCE_S = 10e-6
"""One all-reduce of few bytes over NVLink; two in each layer."""
LINK_SHARE = 0.7
OVERLAP = 0.66
"""Neighbouring tokens of one text share experts: n of them touch as many as n**0.66 independent
ones do. Fitted on one published point: four verified tokens read 2.5 times the experts of one, not
four (Cohere)."""


@dataclass(frozen=True, slots=True)
class Machine:
    gpu: Gpu
    count: int

    def seconds(self, read_bytes: float, operations: float, narrow: bool) -> float:
        """read_bytes, operations: of all GPUs together, spread evenly."""
        memory_s = read_bytes / self.count / (self.gpu.bandwidth_tb_s * 1e12 * MEMORY_SHARE)
        compute_s = operations / self.count / (self.gpu.flops(narrow) * COMPUTE_SHARE)
        return max(memory_s, compute_s)

    def reduces(self, shape: Shape, rows: float) -> float:
        """Seconds of the all-reduces of one pass."""
        if self.count == 1:
            return 0.0
        moved = 2 * (self.count - 1) / self.count * rows * shape.hidden * 2
        return 2 * shape.layers * (REDUCE_S + moved / (self.gpu.link_gb_s * 1e9 * LINK_SHARE))


def pass_seconds(
    machine: Machine,
    shape: Shape,
    sequences: int,
    rows: int,
    context: int,
    *,
    shared: bool = False,
) -> float:
    """One pass of ``sequences`` that bring ``rows`` tokens each, behind ``context`` tokens.

    shared: neighbouring rows share experts (``OVERLAP``); else all are routed independently.
    """
    apart = sequences * (rows**OVERLAP if shared else rows)
    copies = machine.count / shape.kv_split(machine.count)
    read = shape.pass_bytes(apart) + sequences * shape.kv_read_bytes(context) * copies
    tokens = sequences * rows
    attended = min(context, 4096) if shape.ratios else context
    operations = 2.0 * shape.active_params * tokens
    operations += 4.0 * shape.layers * shape.heads * shape.head_dim * attended * tokens
    narrow = shape.weight_bytes <= 1.0
    return (
        machine.seconds(read, operations, narrow)
        + shape.layers * LAYER_S
        + shape.moe_layers * MOE_LAYER_S
        + machine.reduces(shape, tokens)
    )


def step_seconds(
    machine: Machine, shape: Shape, sequences: int, rows: int, context: int, *, shared: bool = False
) -> float:
    """As ``pass_seconds``, with what an engine does around it."""
    return STEP_S + pass_seconds(machine, shape, sequences, rows, context, shared=shared)


def draft_seconds(
    machine: Machine, draft: Draft, sequences: int, tokens: int, context: int
) -> float:
    """One round of drafting ``tokens`` for each sequence."""
    one = pass_seconds(machine, draft.shape, sequences, draft.rows(tokens), context)
    # The Markov matrices are kept whole on each GPU: every one reads them.
    turns = tokens * (machine.seconds(draft.step_bytes * machine.count, 0.0, False))
    return draft.passes(tokens) * one + turns
