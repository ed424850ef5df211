"""What can be wrong with a model that somebody points the engine at. Leaf module, no torch."""

from __future__ import annotations


class ModelError(Exception):
    """A model cannot be fetched, read or run; the message says what to do about it."""


class FetchError(ModelError):
    """The embedded model could not be brought into the cache."""


class WeightsError(ModelError):
    """A checkpoint lacks a tensor, has one too many, or one of the wrong shape."""


class UnsupportedModel(ModelError):
    """The checkpoint is of an architecture, or uses a feature, that this engine does not know."""


class TokenizerError(ModelError):
    """The tokenizer or chat template cannot be read or used."""
