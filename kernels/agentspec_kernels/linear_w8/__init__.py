"""A linear layer over int8 weights with a scale a row or a group, activations as they are."""

from .op import linear_w8

__all__ = ["linear_w8"]
