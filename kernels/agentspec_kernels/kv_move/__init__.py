"""Writing keys and values into their pages, and moving them where accepted tokens belong."""

from .op import kv_append, kv_compact

__all__ = ["kv_append", "kv_compact"]
