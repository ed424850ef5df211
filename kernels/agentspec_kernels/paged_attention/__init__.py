"""Causal attention of packed rows over keys and values that lie in pages."""

from .layout import PagedLayout
from .op import paged_attention

__all__ = ["PagedLayout", "paged_attention"]
