"""``accept``: argument checks and choice of backend. Legend: as in ``chains.py``."""

from __future__ import annotations

from agentspec_kernels.backend import pick

from . import reference
from .chains import Chains, Decision


def _triton(chains: Chains) -> Decision:
    """One program a row, then one a sequence."""
    from . import kernel

    return kernel.accept(chains)


BACKENDS = {"reference": reference.accept, "torch": reference.accept, "triton": _triton}


def accept(chains: Chains, *, backend: str | None = None) -> Decision:
    """How many drafts of each chain stand, and the token after them; changes nothing.

    Raises ``UnknownBackend``.
    """
    chains.check()
    return pick("accept", BACKENDS, backend, chains.logits.device.type)(chains)
