"""By which angles a model turns its queries and keys. No torch.

Legend: D head size, C positions.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from .config import ModelConfig, Scaling


def turns(
    config: ModelConfig, positions: int, *, local: bool = False
) -> tuple[npt.NDArray, npt.NDArray]:
    """cos and sin, each [C, D/2] float64, of positions 0 .. C-1. local: of the sliding layers.

    float64 on purpose: in float32 the angle of position 8,000 is off by 5e-4.
    """
    half = np.arange(0, config.head_dim, 2) / config.head_dim
    own = local and config.local_theta is not None
    theta = config.local_theta if own and config.local_theta is not None else config.rope_theta
    speeds, factor = theta**-half, 1.0
    if config.scaling is not None and not own:
        speeds, factor = _scaled(speeds, theta, config.scaling), config.scaling.attention
    angles = np.outer(np.arange(positions) / config.position_scale, speeds)
    return np.cos(angles) * factor, np.sin(angles) * factor


def _scaled(speeds: npt.NDArray, theta: float, scaling: Scaling) -> npt.NDArray:
    """Radians a position, [D/2] float64, after ``scaling``."""
    slow = speeds / scaling.factor
    if scaling.kind == "linear":
        return slow
    kept = _llama3(speeds, scaling) if scaling.kind == "llama3" else _yarn(speeds, theta, scaling)
    return slow * (1.0 - kept) + speeds * kept


def _llama3(speeds: npt.NDArray, scaling: Scaling) -> npt.NDArray:
    """Share of each pair's speed that is kept (Llama 3.1's ``apply_scaling``): by its turns over
    the original window."""
    over = scaling.original * speeds / (2 * math.pi)
    return np.clip((over - scaling.low) / (scaling.high - scaling.low), 0.0, 1.0)


def _yarn(speeds: npt.NDArray, theta: float, scaling: Scaling) -> npt.NDArray:
    """The same by a ramp over the pairs' numbers (Peng et al., arXiv 2309.00071, section 3.2)."""
    size = 2 * len(speeds)

    def pair(turned: float) -> float:
        reach = math.log(scaling.original / (turned * 2 * math.pi))
        return size * reach / (2 * math.log(theta))

    first, last = pair(scaling.high), pair(scaling.low)
    if scaling.truncate:
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    ramp = (np.arange(len(speeds)) - first) / ((last - first) or 0.001)
    return 1.0 - np.clip(ramp, 0.0, 1.0)
