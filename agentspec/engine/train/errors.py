"""What a user of ``agentspec draft`` can get wrong. No torch."""

from __future__ import annotations

from agentspec.engine.model.errors import ModelError


class TrainError(ModelError):
    """A stage cannot run with what it was given; the message names the key or file."""


class Mismatch(TrainError):
    """Data, checkpoint and target don't belong together; the message names what differs."""
