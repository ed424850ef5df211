"""The dashboard's routes. Pages are plain functions, so that Starlette runs them, and the database
work in them, in its thread pool and not on the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import RedirectResponse, Response

from agentspec.store.board import Board, Look
from agentspec.store.choices import choices

from . import lists, overview_page
from .assets import ASSETS, asset_response
from .context import Context
from .pages import Frame, Pages
from .serving import COOKIE, SECURITY_HEADERS, THEMES, Site
from .sheet import Block, Sheet
from .sheets import PARAMETERS, SHEETS
from .view import View

_YEAR_S = 31_536_000


def router(
    database_url: str,
    authorize: Callable[..., Any] | None = None,
    *,
    clock: Callable[[], float] = time.time,
    context: Context | None = None,
) -> APIRouter:
    """The pages under ``/dashboard`` over the ledger at ``database_url``.

    ``authorize``: a FastAPI dependency that raises unless the caller may see the pages; style sheet
    and icon need none. ``clock``: seconds since 1970. ``context``: what the pages are told beside
    the ledger. Connects to nothing before the first page, and lets go of it when the app ends;
    while the database is away or not at this code's revision, pages answer 503 and say why.
    """
    board = Board(database_url)
    routes = APIRouter(include_in_schema=False, lifespan=_closing(board))
    guarded = APIRouter(dependencies=[Depends(authorize)] if authorize else [])
    site = Site(board, context or Context(), clock, Pages())
    _add_overview(guarded, site)
    for name, build in SHEETS.items():
        _add_sheet(guarded, site, name, build)
    lists.add(guarded, site)
    _add_theme(guarded)
    routes.include_router(guarded)

    @routes.get("/dashboard/static/{name:path}")
    def static(request: Request, name: str) -> Response:
        if name not in ASSETS:
            return Response(status_code=404)
        taken = request.headers.get("accept-encoding", "")
        return asset_response(name, zipped="gzip" in taken.lower())

    return routes


def _closing(board: Board) -> Callable[[Any], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(board.close)

    return lifespan


def _add_overview(routes: APIRouter, site: Site) -> None:
    @routes.get("/dashboard")
    def overview(request: Request) -> Response:
        def render(frame: Frame) -> tuple[str, int]:
            view = site.view(request)
            with site.board.look(view.window, view.where) as look:
                found, blocks = overview_page.overview(look, view)
                offered = look.ask(choices)
            base_url = str(request.base_url)
            return site.pages.overview(frame, view, found, blocks, offered, base_url), 200

        return site.answer(request, render)

    @routes.get("/dashboard/overview.csv")
    def table(request: Request, block: str = "") -> Response:
        def find() -> list[Block]:
            view = site.view(request, "/dashboard")
            with site.board.look(view.window, view.where) as look:
                return overview_page.overview(look, view)[1]

        return site.csv(block, find)


def _add_sheet(
    routes: APIRouter, site: Site, name: str, build: Callable[[Look, View, Context], Sheet]
) -> None:
    path, own = f"/dashboard/{name}", PARAMETERS.get(name, ())

    def page(request: Request) -> Response:
        def render(frame: Frame) -> tuple[str, int]:
            view = site.view(request, own=own)
            with site.board.look(view.window, view.where) as look:
                offered = look.ask(choices)
                look.take_sql()
                sheet = build(look, view, site.context)
            return site.pages.sheet(frame, view, sheet, offered), 200

        return site.answer(request, render)

    def table(request: Request, block: str = "") -> Response:
        def find() -> list[Block]:
            view = site.view(request, path, own)
            with site.board.look(view.window, view.where) as look:
                return list(build(look, view, site.context).blocks)

        return site.csv(block, find)

    routes.add_api_route(path, page, methods=["GET"], name=name)
    routes.add_api_route(f"{path}.csv", table, methods=["GET"], name=f"{name}.csv")


def _add_theme(routes: APIRouter) -> None:
    @routes.get("/dashboard/theme/{name}")
    def theme(name: str, next: str = "") -> Response:
        """Remember the colours and go back; only to pages of the dashboard."""
        inside = next.startswith("/dashboard") and "\\" not in next and "//" not in next
        answer = RedirectResponse(next if inside else "/dashboard", 303)
        answer.headers.update(SECURITY_HEADERS)
        if name in THEMES:
            answer.set_cookie(
                COOKIE, name, _YEAR_S, path="/dashboard", httponly=True, samesite="lax"
            )
        else:
            answer.delete_cookie(COOKIE, path="/dashboard")
        return answer
