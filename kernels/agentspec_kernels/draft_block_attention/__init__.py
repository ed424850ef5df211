"""Attention of a draft's blocks: each row sees its sequence's context and its whole block."""

from .op import draft_block_attention

__all__ = ["draft_block_attention"]
