"""``accept``, ``accept_tree``: checks and choice of backend. Legend: as in ``chains.py``."""

from __future__ import annotations

from agentspec_kernels.backend import pick

from . import reference, tree_reference
from .chains import Chains, Decision
from .trees import Path, Trees


def _triton(chains: Chains) -> Decision:
    """One program a row, then one a sequence."""
    from . import kernel

    return kernel.accept(chains)


def _triton_tree(trees: Trees) -> Path:
    """The same, each row choosing among those below it."""
    from . import tree_kernel

    return tree_kernel.accept_tree(trees)


BACKENDS = {"reference": reference.accept, "torch": reference.accept, "triton": _triton}
TREE_BACKENDS = {
    "reference": tree_reference.accept_tree,
    "torch": tree_reference.accept_tree,
    "triton": _triton_tree,
}


def accept(chains: Chains, *, backend: str | None = None) -> Decision:
    """How many drafts of each chain stand, and the token after them; changes nothing.

    Raises ``UnknownBackend``.
    """
    chains.check()
    return pick("accept", BACKENDS, backend, chains.logits.device.type)(chains)


def accept_tree(trees: Trees, *, backend: str | None = None) -> Path:
    """Which path of each tree stands, and the token after it; changes nothing.

    Raises ``UnknownBackend``.
    """
    trees.check()
    pick_tree = pick("accept_tree", TREE_BACKENDS, backend, trees.parents.device.type)
    return pick_tree(trees)
