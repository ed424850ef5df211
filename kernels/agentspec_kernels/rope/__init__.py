"""Rotary position embedding, half-rotation layout (Su et al., arXiv 2104.09864)."""

from .op import rope
from .reference import rope_table

__all__ = ["rope", "rope_table"]
