"""One product of many: each row by the weight of its own expert (mixtures of experts)."""

from .op import grouped_linear

__all__ = ["grouped_linear"]
