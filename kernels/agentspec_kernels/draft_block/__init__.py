"""The sequential part of a block draft: Markov head, confidence, choice of tokens."""

from .head import ChainRequest, ChainResult, DraftHead, Sampling
from .op import Chain

__all__ = ["Chain", "ChainRequest", "ChainResult", "DraftHead", "Sampling"]
