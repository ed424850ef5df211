"""``gumbel``: argument checks and choice of backend. Legend: V vocabulary."""

from __future__ import annotations

import torch
from torch import Tensor

from agentspec_kernels.backend import pick

from . import reference

BACKENDS = {"reference": reference.gumbel, "torch": reference.gumbel}


def gumbel(
    seed: int,
    position: int,
    vocab: int,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    backend: str | None = None,
) -> Tensor:
    """Standard Gumbel noise of one position's tokens: new [V] of ``dtype`` (float32 or float64).

    argmax(logits / temperature + noise) is a sample of softmax(logits / temperature). The noise of
    a token is a function of (seed, position, token id) alone, with the same bits on every device
    and for every ``vocab``.
    seed: any integer, taken modulo 2^64. position: the absolute index of the token to be sampled.
    Raises ``UnknownBackend``.
    """
    assert vocab > 0 and dtype in (torch.float32, torch.float64)
    implementation = pick("gumbel", BACKENDS, backend, torch.device(device).type)
    return implementation(seed, position, vocab, device=device, dtype=dtype)
