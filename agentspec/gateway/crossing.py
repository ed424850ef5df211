"""Requests that a web page sends behind its reader's back.

Any page in a browser may post to 127.0.0.1 without asking, as long as the body is declared as text
or as a form; browsers tell its origin (Fetch standard, "append a request Origin header"). A page
has no key, but a browser in which somebody opened the dashboard has one, and sends it along by
itself as Basic does. What is no browser tells no origin, and may declare its body as it likes (curl
calls it a form).

A page whose own name was made to mean 127.0.0.1 (DNS rebinding) is of this endpoint's origin, for
the browser; only the name in ``Host`` gives it away.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from agentspec.wire.access import is_loopback
from agentspec.wire.errors import PermissionDenied


def check_crossing(headers: Mapping[str, str]) -> None:
    """For requests that bring no key. Raise ``PermissionDenied`` for a page of another machine.

    headers: names in lower case. Applications in a browser's clothes (``vscode-webview:``,
    ``tauri:``) are no pages.
    """
    origin = headers.get("origin")
    if origin is not None and _foreign(origin):
        raise PermissionDenied(
            "A page of another site may not use this endpoint, which asks for no API key. Make one "
            "with 'agentspec keys create' to let pages use it.",
            code="foreign_origin",
        )


def check_borrowed(headers: Mapping[str, str]) -> None:
    """For requests that bring a key. Raise ``PermissionDenied`` for a page of another site that
    brings the one which the browser keeps (Basic); a page with a key of its own may."""
    origin, scheme = headers.get("origin"), headers.get("authorization", "")[:6].lower()
    if origin is None or scheme != "basic " or not _foreign(origin):
        return
    try:
        same = urlsplit(origin).netloc == headers.get("host", "")
    except ValueError:
        same = False
    if not same:
        raise PermissionDenied(
            "A page of another site may not use the password that this browser keeps for the "
            "dashboard. Send a key as 'Authorization: Bearer KEY'.",
            code="foreign_origin",
        )


def check_name(headers: Mapping[str, str]) -> None:
    """For pages that are shown without a key. Raise ``PermissionDenied`` where they are asked for
    under a name that is not this machine's own."""
    try:
        host = urlsplit(f"//{headers.get('host', '')}").hostname or ""
    except ValueError:
        host = "?"
    if host and not is_loopback(host):
        raise PermissionDenied(
            "Without an API key this is shown under the names localhost and 127.0.0.1 only: any "
            "page could read it otherwise. Make a key with 'agentspec keys create'.",
            code="foreign_host",
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
