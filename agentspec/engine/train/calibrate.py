"""``agentspec draft calibrate``: temperatures of the confidence head, with and without a mask.

Read next: ``sts.py`` (the fit).
"""

from __future__ import annotations

from typing import Any

import torch

from . import sts
from .config import DraftToml
from .curve import Progress
from .data import read_samples
from .errors import TrainError
from .export import amend
from .masks import SampleMasks
from .teacher import Judged, Opened
from .trainer import EXPORT


def calibrate(toml: DraftToml, *, on: str = "held") -> dict[str, Any]:
    """Fit, and write ``calibration`` into the draft's config. on: "held", "train" or "all".

    Returns the expected calibration error of each prefix before and after. Raises ``TrainError``
    where the draft has no confidence head.
    """
    opened = Opened.of(toml)
    if not opened.draft.spec.confidence_head:
        raise TrainError(f"{toml.draft.method} has no confidence head to calibrate")
    entries = opened.entries(on)
    masks = SampleMasks(opened.target, read_samples(toml, opened.target))
    progress, judged = Progress(), []
    for one in opened.judge(entries, toml.train, masks):
        judged.append(one)
        progress(f"calibrate: {len(judged)}/{len(entries)}", end=len(judged) == len(entries))
    plain, masked = _plain(judged), _masked(judged)
    calibration = {
        "temperatures": [round(t, 4) for t in plain.temperatures],
        "masked_temperatures": [
            round(masked.temperatures[k] if masked.n[k] else t, 4)
            for k, t in enumerate(plain.temperatures)
        ],
    }
    amend(toml.run / EXPORT, calibration=calibration)
    return {"samples": len(judged), "on": on, **calibration, "plain": _told(plain),
            "masked": _told(masked)}  # fmt: skip


def _plain(judged: list[Judged]) -> sts.Fitted:
    return sts.fit(
        torch.cat([one.confidence for one in judged]),
        torch.cat([one.overlap for one in judged]),
        torch.cat([one.valid for one in judged]),
    )


def _masked(judged: list[Judged]) -> sts.Fitted:
    """Over prefixes whose every place is masked; a place that is left one token counts as sure."""
    logits = torch.cat([one.confidence for one in judged])
    masked = torch.cat([one.masked for one in judged])
    overlap = torch.cat([one.masked_overlap for one in judged])
    valid = torch.cat([one.valid & (one.masked | (one.masked_overlap > 0)) for one in judged])
    # What is forced is not a guess: the scheduler takes it as certain, whatever the head says.
    logits = torch.where(masked, logits, torch.full_like(logits, 1e4))
    return sts.fit(logits, overlap, valid.cummin(1).values)


def _told(fitted: sts.Fitted) -> dict[str, Any]:
    return {
        "ece_before": [round(value, 4) for value in fitted.before],
        "ece_after": [round(value, 4) for value in fitted.after],
        "n": fitted.n,
    }
