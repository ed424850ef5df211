"""Position-keyed Gumbel noise: sampling that does not depend on drafts (arXiv 2408.07978)."""

from .argmax import gumbel_argmax
from .op import gumbel
from .reference import token_hash

__all__ = ["gumbel", "gumbel_argmax", "token_hash"]
