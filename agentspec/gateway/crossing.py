"""Requests that a web page sends behind its reader's back, to an endpoint that asks for no key.

Any page in a browser may post to 127.0.0.1 without asking, as long as the body is declared as text
or as a form; browsers tell its origin (Fetch standard, "append a request Origin header"). What asks
for a key needs no such care: a page has none. What is no browser tells no origin, and may declare
its body as it likes (curl calls it a form).
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from agentspec.wire.access import is_loopback
from agentspec.wire.errors import PermissionDenied


def check_crossing(headers: Mapping[str, str]) -> None:
    """Raise ``PermissionDenied`` for a page of another machine. headers: names in lower case.

    Applications in a browser's clothes (``vscode-webview:``, ``tauri:``) are no pages.
    """
    origin = headers.get("origin")
    if origin is not None and _foreign(origin):
        raise PermissionDenied(
            "A page of another site may not use this endpoint, which asks for no API key. Make one "
            "with 'agentspec keys create' to let pages use it.",
            code="foreign_origin",
        )


def _foreign(origin: str) -> bool:
    try:
        parts = urlsplit(origin)
        host = parts.hostname or ""
    except ValueError:
        return True
    if parts.scheme not in ("", "http", "https"):
        return False
    return not is_loopback(host)
