"""AdamW, cosine to zero behind a warm-up, clipping: DeepSpec's settings (all its configs)."""

from __future__ import annotations

import math

import torch
from torch import nn

from .config import TrainConfig


def optimizer(net: nn.Module, config: TrainConfig) -> torch.optim.AdamW:
    """torch's default betas; one group."""
    return torch.optim.AdamW(
        net.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Of step ``step`` (from 0) of ``steps``: linear over the warm-up, then half a cosine to 0."""
    warm = round(config.warmup * steps)
    if step < warm:
        return config.learning_rate * (step + 1) / warm
    done = (step - warm) / max(steps - warm, 1)
    return config.learning_rate * 0.5 * (1 + math.cos(math.pi * done))
