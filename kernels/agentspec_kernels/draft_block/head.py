"""What the chain works with: a draft's heads, one request, its result.

Legend: V target vocabulary, U rows of draft logits, E hidden size, r Markov rank, R rows of a
block, K candidates, W = ceil(V / 32) mask words.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

MARKOV = ("none", "vanilla", "gated", "rnn")
LANES = 16
MOST_CANDIDATES, MOST_RANK = 512, 1024
Mode = Literal["greedy", "noise", "dense"]
MODES: tuple[Mode, ...] = ("greedy", "noise", "dense")


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftHead:
    """Markov and confidence heads (DSpark paper, eq. 5 to 8) over the K best base logits.

    markov: one of ``MARKOV``. w1: [V, r] int8 by token, w2: [U, r] int8 by row of logits, with a
    float32 scale a row. gate, gate_bias: float32, gated [r, E + r] and [r], rnn [3r, 2r + E] and
    [3r]. confidence: [E + r + 1] float32, weights of hidden and token and a bias, or None.
    target_id: [U] int32, the token of each row of logits; None: its own number.
    """

    vocab: int
    rows: int
    hidden: int
    rank: int = 0
    markov: str = "none"
    candidates: int = 128
    w1: npt.NDArray | None = None
    w1_scale: npt.NDArray | None = None
    w2: npt.NDArray | None = None
    w2_scale: npt.NDArray | None = None
    gate: npt.NDArray | None = None
    gate_bias: npt.NDArray | None = None
    confidence: npt.NDArray | None = None
    target_id: npt.NDArray | None = None

    def __post_init__(self) -> None:
        assert self.markov in MARKOV and self.hidden % LANES == 0 and self.rank % LANES == 0
        assert 1 <= self.candidates <= MOST_CANDIDATES and self.rank <= MOST_RANK
        assert (self.w1 is None) == (self.w2 is None) == (self.rank == 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen among the candidates.

    greedy: the best. noise: argmax of log probability + Gumbel noise of (seed, position, token), as
    the target samples with a seed. dense: drawn by ``uniform``, one number a row.
    top_k 0, top_p 1 and min_p 0 are off.
    """

    mode: Mode = "greedy"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainRequest:
    """R rows in a row. logits: [R, U], hidden: [R, E], both float32 and C-contiguous.

    previous: the token before row 0's. position: of row 0's token. mask: [W] uint32, what may be
    chosen in every row; None: everything. state: [r] float32 of the rnn head, moved on in place.
    uniform: [R] float64 in [0, 1), dense only.
    """

    logits: npt.NDArray
    hidden: npt.NDArray
    previous: int
    position: int
    sampling: Sampling
    mask: npt.NDArray | None = None
    state: npt.NDArray | None = None
    uniform: npt.NDArray | None = None


@dataclass(frozen=True, slots=True)
class ChainResult:
    """tokens: one a row, up to the first whose candidates are all forbidden.

    confidence: [R] float32 logits of P(accepted | those before accepted), or zeros; each depends on
    tokens before its own only. ids, probs: [R, K] int32 (-1: none) and float32, dense only: what
    each token was drawn from.
    """

    tokens: list[int]
    confidence: npt.NDArray
    ids: npt.NDArray | None
    probs: npt.NDArray | None


def quantize_table(table: npt.NDArray) -> tuple[npt.NDArray, npt.NDArray]:
    """[V, r] float -> int8 codes [V, r] and float32 scale [V]."""
    table = table.astype(np.float32)
    scale = np.abs(table).max(axis=1) / 127
    inverse = np.divide(1, scale, where=scale > 0, out=np.zeros_like(scale))
    return np.rint(table * inverse[:, None]).astype(np.int8), scale.astype(np.float32)
