"""What fits: weights, draft, graphs and work space on each GPU, and requests in what is left."""

from __future__ import annotations

from dataclasses import dataclass

from .drafts import Draft
from .roofline import Machine
from .shape import Shape

USABLE_SHARE = 0.9
"""Of a GPU's memory (vLLM's ``--gpu-memory-utilization``, default 0.9)."""
GRAPH_BYTES = 1e9
"""Captured graphs of plain decoding on each GPU: an assumption. Wide captures of speculation cost
as much again and more (vLLM PR 54418: capture sizes up to 6,400 tokens left too little for K/V)."""
CHUNK_TOKENS = 8192
"""Of one prefill chunk, for the work space."""
LOGIT_ROWS = 1024
"""Rows of fp32 logits in one sampling pass, at most, twice (logits and their softmax)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes of one GPU; requests of all together. kv_token: bytes of a token on all GPUs together,
    copies included."""

    weights: float
    draft: float
    graphs: float
    activations: float
    kv_room: float
    kv_token: float
    kv_request: float
    requests: int

    @property
    def fits(self) -> bool:
        return self.requests >= 1


def fit(machine: Machine, shape: Shape, draft: Draft | None, context: int, concurrency: int) -> Fit:
    """context: tokens that a request holds; concurrency: of the step that the work space is for."""
    usable = machine.gpu.memory_gb * 1e9 * USABLE_SHARE
    weights = shape.total_bytes / machine.count
    extra = draft.weight_bytes / machine.count if draft else 0.0
    graphs = GRAPH_BYTES * (2 if draft else 1)
    rows = concurrency * (1 + (draft.most if draft else 0))
    activations = work_bytes(machine, shape, rows)
    room = usable - weights - extra - graphs - activations
    request = request_bytes(machine, shape, context)
    token = shape.kv_token_bytes() * _copies(machine, shape)
    if draft:
        request += request_bytes(machine, draft.shape, context)
        token += draft.shape.kv_token_bytes() * _copies(machine, draft.shape)
    requests = int(max(room, 0.0) * machine.count / request)
    return Fit(weights, extra, graphs, activations, room, token, request, requests)


def splits(shape: Shape, gpus: int) -> bool:
    """Whether one tensor-parallel group of so many shares its heads evenly: engines start on no
    other number."""
    kv_even = shape.kv_heads % gpus == 0 or gpus % shape.kv_heads == 0
    return shape.heads % gpus == 0 and kv_even


def _copies(machine: Machine, shape: Shape) -> float:
    return machine.count / shape.kv_split(machine.count)


def request_bytes(machine: Machine, shape: Shape, context: int) -> float:
    """K/V of one request on all GPUs together: those that can't split its heads hold copies."""
    return shape.kv_request_bytes(context) * _copies(machine, shape)


def work_bytes(machine: Machine, shape: Shape, rows: int) -> float:
    """Activations of a prefill chunk (four of the hidden size, two of the MLP's part, in bf16) and
    fp32 logits, on each GPU."""
    width = max(shape.width, shape.expert_width * max(shape.active, 1)) / machine.count
    chunk = CHUNK_TOKENS * (4 * shape.hidden + 2 * width) * 2
    return chunk + 2 * min(rows, LOGIT_ROWS) * shape.vocab * 4
