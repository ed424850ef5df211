"""Root-mean-square normalisation of rows (Zhang and Sennrich, arXiv 1910.07467)."""

from .op import rms_norm

__all__ = ["rms_norm"]
