"""x @ W.T where W is e4m3 with a scale a row, a group of a row, or a block."""

from .op import linear_fp8

__all__ = ["linear_fp8"]
