"""The definition of ``markov_step``, a row at a time in float64. Legend: as in ``step.py``.

The K best allowed base logits are kept (equals: the smaller token), W2 times the vector is added to
those (DSpark paper, eq. 5 and 6), and a token is chosen among them: the best; the argmax of log
probability plus noise; or by the inverse of the distribution function, best first.
"""

from __future__ import annotations

import torch

from agentspec_kernels.draft_block.head import Sampling
from agentspec_kernels.draft_block.reference import truncated
from agentspec_kernels.gumbel.reference import from_key

from .step import Choice, Step


def markov_step(step: Step) -> Choice:
    """See ``op.markov_step``."""
    rows, device = len(step.logits), step.logits.device
    token = torch.full((rows,), -1, dtype=torch.int32, device=device)
    ids = torch.full((rows, step.candidates), -1, dtype=torch.int32, device=device)
    probs = torch.zeros((rows, step.candidates), device=device)
    for row in range(rows):
        at = _kept(step, row)
        if not at:
            continue
        bias = step.w2[at].double() @ step.vector[row].double() * step.w2_scale[at].double()
        values = step.logits[row, at].double() + bias
        order = values.argsort(descending=True, stable=True)
        names = torch.tensor(at, device=device) if step.target_id is None else step.target_id[at]
        names, values = names[order], values[order]
        weight = _weights(step, row, values)
        ids[row, : len(weight)], probs[row, : len(weight)] = names[: len(weight)].int(), weight
        token[row] = names[_place(step, row, weight, names)]
    return Choice(token, ids, probs)


def _kept(step: Step, row: int) -> list[int]:
    """The K best allowed rows of logits, ascending."""
    scores = step.logits[row].double()
    at = torch.arange(len(scores), device=scores.device)
    if step.mask is not None:
        bits = step.mask[row].long()[at // 32] >> (at % 32) & 1
        scores = scores.masked_fill(bits == 0, -torch.inf)
    best = scores.argsort(descending=True, stable=True)[: step.candidates]
    return sorted(best[scores[best] > -torch.inf].tolist())


def _weights(step: Step, row: int, values: torch.Tensor) -> torch.Tensor:
    """Falling values -> probabilities of the leading ones that the row's rules leave, float64."""
    temperature = float(step.temperature[row])
    if temperature == 0.0:
        return torch.ones_like(values[:1])
    rules = Sampling(
        mode="dense",
        temperature=temperature,
        top_k=int(step.top_k[row]),
        top_p=float(step.top_p[row]),
        min_p=float(step.min_p[row]),
    )
    return truncated(values, rules)


def _place(step: Step, row: int, weight: torch.Tensor, names: torch.Tensor) -> int:
    """Which of the leading candidates is chosen."""
    if float(step.temperature[row]) == 0.0:
        return 0
    if int(step.seeded[row]):
        noise = from_key(int(step.key[row]), int(names.max()) + 1, names.device)
        return int((weight.log() + noise[names[: len(weight)].long()]).argmax())
    below = weight.cumsum(0)
    place = int(torch.searchsorted(below, below[-1] * float(step.pick[row]), right=True))
    return min(place, len(weight) - 1)
