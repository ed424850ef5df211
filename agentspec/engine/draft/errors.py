"""What can be wrong with a draft that somebody loads. Leaf module, no torch."""

from __future__ import annotations

from agentspec.engine.model.errors import ModelError


class DraftError(ModelError):
    """A draft can't be loaded."""


class DraftMismatch(DraftError):
    """A draft doesn't fit the target that is served. ``what`` names the entry that differs."""

    def __init__(self, what: str, message: str):
        super().__init__(f"{what}: {message}")
        self.what = what


class UnsupportedDraft(DraftError):
    """The draft uses something that this engine doesn't know; the message names it."""
