"""The definition of ``accept_tree``, a row at a time in float64. Legend: as in ``trees.py``.

From the first row on the path goes to the row that stands. Greedy, with a seed, or where drafts
were certain, the target's own token is chosen, and the first row behind that token stands. Else the
tokens after a row are tried in turn, each against what the rejections before it left of the target
(recursive rejection sampling: Miao et al., arXiv 2305.09781, section 4.3; Chen et al., arXiv
2402.12374); where none stands, what is left is sampled.
"""

from __future__ import annotations

import torch

from agentspec_kernels.gumbel.reference import from_key

from .chains import Chains
from .reference import LEAST_RESIDUAL, allowed_scores, drawn, target_probs
from .trees import Path, Trees


def accept_tree(trees: Trees) -> Path:
    """See ``op.accept_tree``."""
    rows, parents = trees.rows, trees.parents.tolist()
    stands = torch.zeros_like(trees.parents)
    counts, tokens = [], []
    starts = rows.starts.tolist()
    for first, last in zip(starts, starts[1:], strict=False):
        at, count = first, 0
        while True:
            stands[at] = 1
            below = [row for row in range(at + 1, last) if parents[row] == at]
            found, token = branch(rows, at, below)
            if found < 0:
                break
            at, count = found, count + 1
        counts.append(count)
        tokens.append(token)
    int32 = {"dtype": torch.int32, "device": stands.device}
    return Path(torch.tensor(counts, **int32), torch.tensor(tokens, **int32), stands)


def branch(rows: Chains, at: int, below: list[int]) -> tuple[int, int]:
    """Which of the rows ``below`` stands, -1: none; and the token that was chosen."""
    scores = allowed_scores(rows, at)
    best = int(scores.argmax()) if not scores.isnan().any() else -1
    if best < 0 or not -torch.inf < float(scores[best]) < torch.inf:
        return -1, -1
    greedy = float(rows.temperature[at]) == 0.0
    if greedy or int(rows.seeded[at]) or rows.draft_probs is None:
        token = best if greedy else _own(rows, at)
        return next((row for row in below if int(rows.drafts[row]) == token), -1), token
    probs = target_probs(rows, at)
    for row in below:
        token, offered = int(rows.drafts[row]), rows.draft_probs[row].double()
        wanted, claimed = float(probs[token]), float(offered[token])
        probability = (wanted > 0.0) * 1.0 if wanted >= claimed else wanted / claimed
        if float(rows.coin[row]) < probability:
            return row, token
        rest = (probs - offered).clamp_min(0.0)
        mass = rest.sum()
        probs = rest / mass if float(mass) > LEAST_RESIDUAL else probs
    return -1, drawn(probs, float(rows.pick[at]))


def _own(rows: Chains, at: int) -> int:
    probs = target_probs(rows, at)
    if not int(rows.seeded[at]):
        return drawn(probs, float(rows.pick[at]))
    return int((probs.log() + from_key(int(rows.key[at]), len(probs), probs.device)).argmax())
