"""The dashboard's routes. Pages are plain functions, so that Starlette runs them, and the database
work in them, in its thread pool and not on the event loop."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, Response

from agentspec.settings import PoolSettings
from agentspec.store.errors import StoreError
from agentspec.store.reader import Reader
from agentspec.store.requests import Filters
from agentspec.store.window import Window

from .assets import ASSETS, asset_response
from .cursor import parse_cursor
from .pages import Pages
from .ranges import parse_range

SECURITY_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
}


def router(
    database_url: str,
    authorize: Callable[..., Any] | None = None,
    *,
    clock: Callable[[], float] = time.time,
    pools: Mapping[str, PoolSettings] | None = None,
) -> APIRouter:
    """The pages under ``/dashboard`` over the ledger at ``database_url``.

    ``authorize``: a FastAPI dependency that raises unless the caller may see the pages; style sheet
    and icon need none. ``clock``: seconds since 1970. ``pools``: what self-hosted backends cost by
    the hour, by name. Connects to nothing before the first page; while the database is away or not
    at this code's revision, pages answer 503 and say why.
    """
    routes = APIRouter(include_in_schema=False)
    dependencies = [Depends(authorize)] if authorize else []
    _add_pages(routes, Reader(database_url), dependencies, clock, pools or {})

    @routes.get("/dashboard/static/{name}")
    def static(name: str) -> Response:
        if name not in ASSETS:
            return Response(status_code=404)
        return asset_response(name)

    return routes


def _answering(pages: Pages) -> Callable[[Callable[[], tuple[str, int]]], HTMLResponse]:
    """Answers with what a function renders, (page, status); with 503 where the store fails."""

    def page(render: Callable[[], tuple[str, int]]) -> HTMLResponse:
        try:
            html, status = render()
        except StoreError as error:
            html, status = pages.failure(str(error)), 503
        return HTMLResponse(html, status, SECURITY_HEADERS)

    return page


def _add_pages(
    routes: APIRouter,
    reader: Reader,
    dependencies: list[Any],
    clock: Callable[[], float],
    pools: Mapping[str, PoolSettings],
) -> None:
    pages = Pages()
    page = _answering(pages)
    _add_accounts(routes, reader, dependencies, clock, pools)

    @routes.get("/dashboard", dependencies=dependencies)
    def overview(request: Request, range: str = "") -> HTMLResponse:
        chosen, now_ms = parse_range(range), int(clock() * 1000)

        def render() -> tuple[str, int]:
            found = reader.overview(chosen.window(now_ms), chosen.bucket_ms, recent=20)
            return pages.overview(found, chosen, now_ms, str(request.base_url)), 200

        return page(render)

    @routes.get("/dashboard/requests", dependencies=dependencies)
    def requests(
        range: str = "",
        session: str = "",
        model: str = "",
        backend: str = "",
        status: str = "",
        before: str = "",
    ) -> HTMLResponse:
        chosen, now_ms = parse_range(range), int(clock() * 1000)
        filters = Filters(session_id=session, model=model, backend=backend, status=status)

        def render() -> tuple[str, int]:
            window, size = chosen.window(now_ms), pages.list_size
            rows = reader.recent(window, size + 1, filters, parse_cursor(before))
            return pages.requests(rows[:size], len(rows) > size, chosen, now_ms, filters), 200

        return page(render)

    @routes.get("/dashboard/requests/{id:path}", dependencies=dependencies)
    def one(id: str) -> HTMLResponse:
        def render() -> tuple[str, int]:
            record = reader.request(id)
            if record is None:
                return pages.missing(id), 404
            return pages.request(record), 200

        return page(render)


def _add_accounts(
    routes: APIRouter,
    reader: Reader,
    dependencies: list[Any],
    clock: Callable[[], float],
    pools: Mapping[str, PoolSettings],
) -> None:
    """Where the money goes, and who may spend it."""
    pages = Pages()
    page = _answering(pages)

    @routes.get("/dashboard/cost", dependencies=dependencies)
    def cost(range: str = "") -> HTMLResponse:
        chosen, now_ms = parse_range(range), int(clock() * 1000)
        # Up to now: what is provisioned later is not paid for yet.
        window = Window(chosen.window(now_ms).since_ms, now_ms + 1)
        return page(lambda: (pages.cost(reader.costs(pools, window), pools, chosen, window), 200))

    @routes.get("/dashboard/keys", dependencies=dependencies)
    def keys() -> HTMLResponse:
        now_ms = int(clock() * 1000)
        return page(lambda: (pages.keys(reader.keys(now_ms), now_ms), 200))
