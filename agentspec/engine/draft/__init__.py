"""Draft sources by name. Their modules are imported when one is created.

Read next: ``base.py`` (the contract), ``suffix.py`` (the default).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import Drafter

_CLASSES = {
    "suffix": ("suffix", "SuffixDrafter"),
    "suffix_tree": ("suffix", "SuffixTreeDrafter"),
    "ngram": ("ngram", "NgramDrafter"),
}


class UnknownDrafter(ValueError):
    """No draft source has the name that was asked for."""


def names() -> tuple[str, ...]:
    """The draft sources there are, the default first (forced spans need no drafter)."""
    return tuple(_CLASSES)


def create(name: str, **options: Any) -> Drafter:
    """A new drafter; ``options`` are its constructor's. Raises ``UnknownDrafter``."""
    if name not in _CLASSES:
        raise UnknownDrafter(f"unknown draft source '{name}' (known: {', '.join(_CLASSES)})")
    module, kind = _CLASSES[name]
    return getattr(import_module(f".{module}", __name__), kind)(**options)
