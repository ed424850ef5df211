"""Which version a server is, as it tells itself."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec

from agentspec.wire.errors import UpstreamFailed

from .http import HttpClient

_OBJECT = msgspec.json.Decoder(dict[str, Any])
_NO_SUCH_PATH = (404, 405, 501)
LONGEST = 60


@runtime_checkable
class TellsVersion(Protocol):
    """A backend that says which version it is."""

    async def version(self) -> str | None:
        """None where it doesn't tell. Raises ``AgentspecError`` where it can't be reached."""
        ...


async def version_at(http: HttpClient, path: str, field: str) -> str | None:
    """A field of the JSON object at a path of the server; None where there is no such thing."""
    try:
        value = _OBJECT.decode(await http.get(f"{http.origin}{path}")).get(field)
    except UpstreamFailed as error:
        if error.status in _NO_SUCH_PATH:
            return None
        raise
    except (msgspec.DecodeError, msgspec.ValidationError, RecursionError):
        return None
    return value[:LONGEST] if isinstance(value, str) else None
