"""How much of drafted chains, and which path of drafted trees stands; and the token after it."""

from .chains import Chains, Decision
from .op import accept, accept_tree
from .trees import Path, Trees

__all__ = ["Chains", "Decision", "Path", "Trees", "accept", "accept_tree"]
