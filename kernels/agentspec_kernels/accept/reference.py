"""The definition of ``accept``, a row at a time in float64. Legend: as in ``chains.py``.

A row's target distribution is the softmax of its allowed scores over the temperature, cut to the
top_k best, then to the fewest best that hold a mass of top_p, then to those with at least min_p of
the best one's probability, each renormalised. Equal scores rank by the smaller token.

Without a seed a drafted token stands with probability min(1, target_probs / draft_probs), else the
residual max(target_probs - draft_probs, 0) is sampled (Leviathan et al., arXiv 2211.17192; Chen et
al., arXiv 2302.01318). Greedy, and with a seed (the argmax of log target_probs + noise: Daliri et
al., arXiv 2408.07978), it stands where it is the target's own token.
"""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.gumbel.reference import from_key

from .chains import Chains, Decision

LEAST_RESIDUAL = 1e-12
"""Below this mass a residual is rounding error: the target is sampled instead."""


def accept(chains: Chains) -> Decision:
    """See ``op.accept``."""
    counts, tokens = [], []
    starts = chains.starts.tolist()
    for first, last in zip(starts, starts[1:], strict=False):
        for row in range(first, last):
            stands, token = decide(chains, row)
            if not stands:
                counts.append(row - first)
                tokens.append(token)
                break
        else:
            raise AssertionError("the last row of a chain tests no draft")
    device = chains.logits.device
    return Decision(
        torch.tensor(counts, dtype=torch.int32, device=device),
        torch.tensor(tokens, dtype=torch.int32, device=device),
    )


def decide(chains: Chains, row: int) -> tuple[bool, int]:
    """Whether the row's draft stands, and the token to be taken where it does not."""
    draft = int(chains.drafts[row])
    scores = allowed_scores(chains, row)
    best = int(scores.argmax()) if not scores.isnan().any() else -1
    if best < 0 or not -torch.inf < float(scores[best]) < torch.inf:
        return False, -1
    if float(chains.temperature[row]) == 0.0:
        return best == draft, best
    probs = target_probs(chains, row)
    if int(chains.seeded[row]):
        chosen = int(
            (probs.log() + from_key(int(chains.key[row]), len(probs), probs.device)).argmax()
        )
        return chosen == draft, chosen
    offered = torch.zeros_like(probs)
    if draft >= 0:
        if chains.draft_probs is None:
            offered[draft] = 1.0
        else:
            offered = chains.draft_probs[row].double()
        wanted, claimed = float(probs[draft]), float(offered[draft])
        probability = (wanted > 0.0) * 1.0 if wanted >= claimed else wanted / claimed
        if float(chains.coin[row]) < probability:
            return True, draft
    rest = (probs - offered).clamp_min(0.0)
    if float(rest.sum()) <= LEAST_RESIDUAL:
        rest = probs
    return False, drawn(rest, float(chains.pick[row]))


def drawn(weights: Tensor, uniform: float) -> int:
    """The token whose interval of the distribution function of ``weights`` [V] holds it."""
    below = weights.cumsum(0)
    at = int(torch.searchsorted(below, below[-1] * uniform, right=True))
    return min(at, int(weights.nonzero()[-1]))


def allowed_scores(chains: Chains, row: int) -> Tensor:
    """[V] float64, -inf where the mask forbids."""
    scores = chains.logits[row].double()
    if chains.mask is not None:
        ids = torch.arange(len(scores), device=scores.device)
        bits = chains.mask[row].long()[ids // 32] >> (ids % 32) & 1
        scores = scores.masked_fill(bits == 0, -torch.inf)
    return scores


def target_probs(chains: Chains, row: int) -> Tensor:
    """[V] float64 of a row that has a best score."""
    scores = allowed_scores(chains, row)
    order = scores.argsort(descending=True, stable=True)
    probs = torch.softmax((scores - scores.max()) / float(chains.temperature[row]), 0)[order]
    top_k, top_p = int(chains.top_k[row]), float(chains.top_p[row])
    if 0 < top_k < len(probs):
        probs[top_k:] = 0.0
        probs /= probs.sum()
    if top_p < 1.0:
        before = probs.cumsum(0) - probs
        keep = before < top_p
        keep[0] = True
        probs = torch.where(keep, probs, 0.0)
    probs = torch.where(probs >= float(chains.min_p[row]) * probs[0], probs, 0.0)
    result = torch.zeros_like(probs)
    result[order] = probs / probs.sum()
    return result
