"""``agentspec draft eval``: accepted length of a trained draft, teacher-forced or by generating.

Accepted length counts the token that the target adds. ``greedy``: the walk that an engine at T = 0
takes along each answer (exact where the answer is the target's greedy one): from an anchor, as many
tokens as are hit in a row stand, and the next anchor is the token after them. ``drawn``: the mean
over all anchors of what is expected at T = 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from .config import DraftToml
from .curve import Progress
from .engine_eval import generate
from .teacher import Judged, Opened


@dataclass(frozen=True, slots=True)
class Walk:
    """One sample: verifications, and the tokens that they brought."""

    steps: int
    tokens: int


def evaluate(
    toml: DraftToml, *, on: str = "held", most: int = 200, through_engine: bool = False
) -> dict[str, Any]:
    """on: "held", "train" or "all"; most: samples. Raises ``TrainError`` or ``Mismatch``."""
    opened = Opened.of(toml)
    entries = opened.entries(on)[:most]
    progress, judged = Progress(), []
    for one in opened.judge(entries, toml.train):
        judged.append(one)
        progress(f"eval: {len(judged)}/{len(entries)}", end=len(judged) == len(entries))
    result = {"method": toml.draft.method, "on": on, "samples": len(judged), **figures(judged)}
    if through_engine:
        result["engine"] = generate(toml, opened, entries)
    return result


def figures(judged: Sequence[Judged]) -> dict[str, Any]:
    """Accepted lengths with 95 % intervals over samples, and the rates by place."""
    walks = [walk(one) for one in judged]
    drawn = [_drawn(one) for one in judged]
    valid = torch.cat([one.valid for one in judged])
    before = torch.cat([_leading(one) for one in judged])
    hit, overlap = (torch.cat([getattr(one, n) for one in judged]) for n in ("hit", "overlap"))
    return {
        "greedy": ratio([w.tokens for w in walks], [w.steps for w in walks]),
        "drawn": ratio([d[0] for d in drawn], [d[1] for d in drawn]),
        "hit_given_prefix": [
            _rate(hit[:, k], valid[:, k] & before[:, k]) for k in range(valid.shape[1])
        ],
        "overlap": [_rate(overlap[:, k], valid[:, k]) for k in range(valid.shape[1])],
        "anchors": len(valid),
    }


def walk(one: Judged) -> Walk:
    """Along the answer from its first token; the anchor of row i is the answer's token i."""
    hits = (one.hit & one.valid).int().cumprod(1).sum(1).tolist()
    at, steps = 0, 0
    while at < len(hits):
        at += hits[at] + 1
        steps += 1
    # The last verification may bring the end sooner than its bonus token.
    return Walk(steps, min(at, len(hits)))


def _drawn(one: Judged) -> tuple[float, int]:
    """(sum over anchors of the expected accepted length, anchors)."""
    survival = (one.overlap * one.valid).cumprod(1)
    return float(survival.sum()) + len(one.valid), len(one.valid)


def _leading(one: Judged) -> torch.Tensor:
    """[A, K] bool: every place before was hit."""
    all_hit = (one.hit & one.valid).int().cumprod(1).bool()
    first = torch.ones(len(all_hit), 1, dtype=torch.bool)
    return torch.cat((first, all_hit[:, :-1]), 1)


def _rate(values: torch.Tensor, where: torch.Tensor) -> float | None:
    return round(float(values[where].double().mean()), 4) if bool(where.any()) else None


def ratio(tops: Sequence[float], bottoms: Sequence[float]) -> dict[str, Any]:
    """sum(tops) / sum(bottoms), and half the width of its 95 % interval (delta method)."""
    n, total = len(tops), sum(bottoms)
    value = sum(tops) / total
    spread = sum((t - value * b) ** 2 for t, b in zip(tops, bottoms, strict=True))
    ci = 1.96 * math.sqrt(spread * n / max(n - 1, 1)) / total if n > 1 else None
    return {"accepted_length": round(value, 4), "ci95": ci and round(ci, 4), "n": n}
