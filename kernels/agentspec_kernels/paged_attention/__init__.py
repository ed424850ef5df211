"""Causal attention of packed rows over keys and values that lie in pages."""

from .layout import PagedLayout
from .op import paged_attention
from .write import write_pages

__all__ = ["PagedLayout", "paged_attention", "write_pages"]
