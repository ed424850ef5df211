"""One row of a block draft for many sequences: Markov bias on the best candidates, and a choice."""

from .op import markov_step
from .step import Choice, Step

__all__ = ["Choice", "Step", "markov_step"]
