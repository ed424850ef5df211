"""The definition of the draft chain, in float64 on torch. Legend: as in ``head.py``."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from agentspec_kernels.gumbel import gumbel

from .head import ChainRequest, ChainResult, DraftHead, Sampling


def draft_chain(head: DraftHead, request: ChainRequest) -> ChainResult:
    """See ``op.Chain``."""
    rows, previous = request.logits.shape[0], request.previous
    state = None if request.state is None else torch.from_numpy(request.state).double()
    tokens: list[int] = []
    confidence = np.zeros(rows, np.float32)
    ids = np.full((rows, head.candidates), -1, np.int32)
    probs = np.zeros((rows, head.candidates), np.float32)
    for k in range(rows):
        hidden = torch.from_numpy(request.hidden[k]).double()
        embedding = _row(head.w1, head.w1_scale, [previous])[0] if head.rank else torch.zeros(0)
        if head.confidence is not None:
            weight = torch.from_numpy(head.confidence).double()
            confidence[k] = float(weight[:-1] @ torch.cat([hidden, embedding]) + weight[-1])
        kept, values = _best(head, request, k)
        if not kept:
            break
        if head.rank:
            vector, state = _markov(head, hidden, embedding, state)
            values = values + _row(head.w2, head.w2_scale, kept) @ vector
        names = [row if head.target_id is None else int(head.target_id[row]) for row in kept]
        order = sorted(range(len(kept)), key=lambda i: (-float(values[i]), names[i]))
        at, best = [names[i] for i in order], values[order]
        previous = _choose(request, k, at, best, ids[k], probs[k])
        tokens.append(previous)
    if state is not None and request.state is not None:
        request.state[:] = state.float().numpy()
    dense = request.sampling.mode == "dense"
    return ChainResult(tokens, confidence, ids if dense else None, probs if dense else None)


def _row(codes: np.ndarray | None, scale: np.ndarray | None, rows: list[int]) -> Tensor:
    """Rows of an int8 table as [len(rows), r] float64."""
    assert codes is not None and scale is not None
    return torch.from_numpy(codes[rows]).double() * torch.from_numpy(scale[rows]).double()[:, None]


def _best(head: DraftHead, request: ChainRequest, k: int) -> tuple[list[int], Tensor]:
    """The K best allowed rows of logits, and their values [K] float64."""
    logits = request.logits[k]
    tokens = np.arange(head.rows) if head.target_id is None else head.target_id
    allowed = np.ones(head.rows, bool)
    if request.mask is not None:
        allowed = (request.mask[tokens // 32] >> (tokens % 32).astype(np.uint32) & 1).astype(bool)
    rows = np.flatnonzero(allowed & (logits > -np.inf))
    kept = rows[np.lexsort((tokens[rows], -logits[rows]))][: head.candidates].tolist()
    return kept, torch.from_numpy(logits[kept]).double()


def _markov(
    head: DraftHead, hidden: Tensor, e: Tensor, state: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """What W2 is multiplied with [r], and the next state [r] (rnn)."""
    if head.markov == "vanilla":
        return e, state
    assert head.gate is not None and head.gate_bias is not None
    gate = torch.from_numpy(head.gate).double()
    bias = torch.from_numpy(head.gate_bias).double()
    if head.markov == "gated":
        return torch.sigmoid(gate @ torch.cat([hidden, e]) + bias) * e, state
    assert state is not None
    g, c, o = (gate @ torch.cat([state, e, hidden]) + bias).chunk(3)
    return torch.tanh(o), torch.sigmoid(g) * state + (1 - torch.sigmoid(g)) * torch.tanh(c)


def truncated(values: Tensor, sampling: Sampling) -> Tensor:
    """Falling [K] float64 -> probabilities of the leading ones that top_k, top_p, min_p leave."""
    probs = torch.softmax(values / sampling.temperature, 0)
    if 0 < sampling.top_k < len(probs):
        probs = probs[: sampling.top_k] / probs[: sampling.top_k].sum()
    if sampling.top_p < 1:
        before = probs.cumsum(0) - probs
        probs = probs[: max(1, int((before < sampling.top_p).sum()))]
    probs = probs[probs >= sampling.min_p * probs[0]]
    return probs / probs.sum()


def _choose(
    request: ChainRequest, k: int, at: list[int], values: Tensor, ids: np.ndarray, probs: np.ndarray
) -> int:
    """One of the tokens ``at``, whose values [K] fall; fills ids and probs [K] where dense."""
    sampling = request.sampling
    if sampling.mode == "greedy":
        return at[0]
    weight = truncated(values, sampling)
    if sampling.mode == "noise":
        noise = gumbel(sampling.seed, request.position + k, max(at) + 1, dtype=torch.float64)
        return at[int((weight.log() + noise[at[: len(weight)]]).argmax())]
    assert request.uniform is not None
    ids[: len(weight)] = at[: len(weight)]
    probs[: len(weight)] = weight.float().numpy()
    below = np.cumsum(probs.astype(np.float64))
    place = int(np.searchsorted(below, request.uniform[k] * below[-1], side="right"))
    place = min(place, len(weight) - 1)
    while place and probs[place] == 0:
        place -= 1
    return int(ids[place])
