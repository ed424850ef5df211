"""A linear layer without bias."""

from .op import linear

__all__ = ["linear"]
