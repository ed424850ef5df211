"""The gate of a SwiGLU feed-forward layer (Shazeer, arXiv 2002.05202)."""

from .op import silu_mul

__all__ = ["silu_mul"]
