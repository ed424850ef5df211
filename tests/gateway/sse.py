"""Events of a stream, read back."""

from __future__ import annotations

import json
from typing import Any


def named_events(text: str) -> list[dict[str, Any]]:
    """The events of a stream whose ``event:`` lines must agree with the data's ``type``."""
    found = []
    for block in text.split("\n\n"):
        lines = [line for line in block.split("\n") if line and not line.startswith(":")]
        if lines:
            name, data = lines
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            found.append(event)
    return found
