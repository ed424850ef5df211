"""Requests that a web page sends behind its reader's back, to an endpoint that asks for no key.

Any page in a browser may post to 127.0.0.1 without asking, as long as the body is declared as text
or as a form; its origin comes with it. What asks for a key needs no such care: a page has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from agentspec.wire.access import is_loopback
from agentspec.wire.errors import PermissionDenied, UnsupportedMediaType


def check_crossing(headers: Mapping[str, str]) -> None:
    """Raise ``PermissionDenied`` for a page of another machine, ``UnsupportedMediaType`` for a body
    that is declared as something else than JSON. headers: names in lower case.

    Applications in a browser's clothes (``vscode-webview:``, ``tauri:``) are no pages.
    """
    origin = headers.get("origin")
    if origin is not None and _foreign(origin):
        raise PermissionDenied(
            "A page of another site may not use this endpoint, which asks for no API key. Make one "
            "with 'agentspec keys create' to let pages use it.",
            code="foreign_origin",
        )
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise UnsupportedMediaType(
            f"Content-Type '{kind[:64]}' is not accepted: send 'application/json'.",
            param="content-type",
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
