"""The static files of the pages: named by their content in the URL, so that they may be cached."""

from __future__ import annotations

import hashlib
from pathlib import Path

from fastapi.responses import Response

_FOLDER = Path(__file__).parent / "static"
ASSETS = {"dashboard.css": "text/css; charset=utf-8", "icon.svg": "image/svg+xml"}


def asset_url(name: str) -> str:
    """The URL of a static file, which changes with its content."""
    digest = hashlib.sha256((_FOLDER / name).read_bytes()).hexdigest()[:12]
    return f"/dashboard/static/{name}?v={digest}"


def asset_response(name: str) -> Response:
    """The file, to be kept by the browser for a year: a changed one has another URL."""
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
    }
    return Response((_FOLDER / name).read_bytes(), media_type=ASSETS[name], headers=headers)
