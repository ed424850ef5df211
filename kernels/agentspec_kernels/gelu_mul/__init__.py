"""The gate of a GEGLU feed-forward layer (Shazeer, arXiv 2002.05202), GELU by its tanh formula."""

from .op import gelu_mul

__all__ = ["gelu_mul"]
