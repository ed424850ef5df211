"""The static files of the pages: named by their content in the URL, so that they may be cached.

Scripts of others stand in ``static/vendor`` as their publishers ship them; ``vendor.lock.json``
holds version and digest of each (``scripts/vendor.sh`` writes both). A page names the digest beside
the script, so that a browser runs no other.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fastapi.responses import Response

_FOLDER = Path(__file__).parent / "static"
_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
VENDORED = ("htmx", "idiomorph-ext", "vega", "vega-lite", "vega-embed")
ASSETS = (
    *("dashboard.css", "icon.svg", "dashboard.js", "chart.js"),
    *(f"vendor/{name}.min.js" for name in VENDORED),
)


@dataclass(frozen=True, slots=True)
class Asset:
    """url: changes with the content; integrity: what a browser holds the content against."""

    url: str
    integrity: str


def asset(name: str) -> Asset:
    """One of ``ASSETS``. A vendored one has the digest of the lock, whatever lies there."""
    own = base64.b64encode(hashlib.sha384((_FOLDER / name).read_bytes()).digest()).decode()
    digest = locked().get(name, f"sha384-{own}")
    tag = hashlib.sha256(digest.encode()).hexdigest()[:12]
    return Asset(f"/dashboard/static/{name}?v={tag}", digest)


@cache
def locked() -> dict[str, str]:
    """Digest by file of what is vendored."""
    lock = json.loads((_FOLDER / "vendor" / "vendor.lock.json").read_text())
    return {f"vendor/{name}": one["integrity"] for name, one in lock["files"].items()}


def asset_response(name: str, *, zipped: bool) -> Response:
    """The file, to be kept by the browser for a year: a changed one has another URL.

    zipped: whether the browser takes gzip.
    """
    headers = {
        "Cache-Control": "public, max-age=31536000, immutable",
        "X-Content-Type-Options": "nosniff",
        "Vary": "Accept-Encoding",
    }
    if zipped:
        headers["Content-Encoding"] = "gzip"
    body = _zipped(name) if zipped else (_FOLDER / name).read_bytes()
    return Response(body, media_type=_TYPES[Path(name).suffix], headers=headers)


@cache
def _zipped(name: str) -> bytes:
    return gzip.compress((_FOLDER / name).read_bytes(), mtime=0)
