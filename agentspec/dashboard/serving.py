"""How a page is answered: the view out of the URL, headers, and errors as pages."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from fastapi import Request
from fastapi.responses import HTMLResponse, Response

from agentspec.store.board import Board
from agentspec.store.errors import StoreError
from agentspec.store.grouping import TooManyRows

from .context import Context
from .pages import Frame, Pages
from .params import BadParameter
from .sheet import Block, csv_text
from .view import View, parse_view

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; "
        "connect-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}
THEMES = ("light", "dark")
COOKIE = "agentspec_theme"


@dataclass(frozen=True, slots=True)
class Site:
    """What every route needs. clock: seconds since 1970."""

    board: Board
    context: Context
    clock: Callable[[], float]
    pages: Pages

    def view(self, request: Request, path: str | None = None, own: Collection[str] = ()) -> View:
        """What is asked for (``parse_view``). Raises ``BadParameter``: to be called where that is
        answered, inside of ``render`` or ``find``."""
        now_ms = int(self.clock() * 1000)
        return parse_view(path or request.url.path, request.query_params, now_ms, own)

    def answer(self, request: Request, render: Callable[[Frame], tuple[str, int]]) -> Response:
        """What ``render`` makes, (page, status); 400 for what cannot be asked for, 503 where the
        store fails."""
        frame = frame_of(request)
        try:
            html, status = render(frame)
        except (TooManyRows, BadParameter) as error:
            html, status = self.pages.refusal(frame, str(error)), 400
        except StoreError as error:
            html, status = self.pages.failure(frame, str(error)), 503
        return HTMLResponse(html, status, SECURITY_HEADERS)

    def csv(self, slug: str, find: Callable[[], list[Block]]) -> Response:
        """One block's table."""
        try:
            found = next((block for block in find() if block.slug == slug), None)
        except (TooManyRows, BadParameter) as error:
            return Response(str(error), 400, SECURITY_HEADERS, "text/plain")
        except StoreError as error:
            return Response(str(error), 503, SECURITY_HEADERS, "text/plain")
        if found is not None and not found.columns:  # too many rows for this table alone
            return Response(found.empty, 400, SECURITY_HEADERS, "text/plain")
        if found is None:
            return Response("No such table.", 404, SECURITY_HEADERS, "text/plain")
        name = f'attachment; filename="{slug}.csv"'
        headers = SECURITY_HEADERS | {"Content-Disposition": name}
        return Response(csv_text(found), 200, headers, "text/csv; charset=utf-8")


def frame_of(request: Request) -> Frame:
    """How the page is to look, and where it is."""
    theme = request.cookies.get(COOKIE, "")
    query = f"?{request.url.query}" if request.url.query else ""
    return Frame(theme if theme in THEMES else "", request.url.path + query)
