"""How much of drafted chains stands, and the token after it."""

from .chains import Chains, Decision
from .op import accept

__all__ = ["Chains", "Decision", "accept"]
