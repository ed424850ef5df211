"""``Chain``: argument checks and choice of backend. Legend: as in ``head.py``."""

from __future__ import annotations

import ctypes as c

import numpy as np

from . import reference
from .head import MARKOV, MODES, ChainRequest, ChainResult, DraftHead


class _Head(c.Structure):
    _fields_ = [
        *((n, c.c_int32) for n in ("rows", "hidden", "rank", "markov", "candidates", "confidence")),
        *((n, c.c_int32) for n in ("reserved", "vocab")),
        *((n, c.c_void_p) for n in ("w1", "w2", "w1_scale", "w2_scale", "gate", "gate_bias")),
        *((n, c.c_void_p) for n in ("confidence_weight", "target_id")),
    ]


class _Chain(c.Structure):
    _fields_ = [
        *((n, c.c_int32) for n in ("rows", "previous", "mode", "top_k")),
        *((n, c.c_float) for n in ("temperature", "top_p", "min_p", "reserved")),
        *((n, c.c_void_p) for n in ("logits", "hidden", "mask", "state", "uniform")),
        ("seed", c.c_uint64),
        ("position", c.c_int64),
        *((n, c.c_void_p) for n in ("tokens", "confidence", "ids", "probs")),
    ]


def _at(array: np.ndarray | None) -> int | None:
    assert array is None or array.flags.c_contiguous
    return None if array is None else array.ctypes.data


class Chain:
    """Chooses a block's tokens, one row after the other, by one head.

    library: a loaded CPU library, whose one call releases the GIL; None: the reference.
    """

    def __init__(self, head: DraftHead, library: c.CDLL | None = None):
        self.head = head
        self._library = library
        if library is not None:
            self._native = _native(head)

    def run(self, request: ChainRequest) -> ChainResult:
        """See ``ChainResult``. Only ``request.state`` is changed."""
        rows, width = request.logits.shape
        head = self.head
        assert width == head.rows and request.hidden.shape == (rows, head.hidden)
        assert request.logits.dtype == request.hidden.dtype == np.float32
        assert (request.state is None) == (head.markov != "rnn")
        assert request.sampling.mode != "dense" or request.uniform is not None
        if self._library is None:
            return reference.draft_chain(head, request)
        tokens, confidence = np.zeros(rows, np.int32), np.zeros(rows, np.float32)
        ids = probs = None
        sampling = request.sampling
        if sampling.mode == "dense":
            ids = np.full((rows, head.candidates), -1, np.int32)
            probs = np.zeros((rows, head.candidates), np.float32)
        chain = _Chain(
            rows,
            request.previous,
            MODES.index(sampling.mode),
            sampling.top_k,
            sampling.temperature,
            sampling.top_p,
            sampling.min_p,
            0.0,
            *map(
                _at,
                (request.logits, request.hidden, request.mask, request.state, request.uniform),
            ),
            sampling.seed & (1 << 64) - 1,
            request.position,
            *map(_at, (tokens, confidence, ids, probs)),
        )
        done = self._library.agentspec_draft_chain(c.byref(self._native), c.byref(chain))
        return ChainResult(tokens[:done].tolist(), confidence, ids, probs)


def _native(head: DraftHead) -> _Head:
    """The head's struct; the head keeps its arrays alive."""
    return _Head(
        head.rows,
        head.hidden,
        head.rank,
        MARKOV.index(head.markov),
        head.candidates,
        int(head.confidence is not None),
        0,
        head.vocab,
        *map(_at, (head.w1, head.w2, head.w1_scale, head.w2_scale, head.gate, head.gate_bias)),
        *map(_at, (head.confidence, head.target_id)),
    )
