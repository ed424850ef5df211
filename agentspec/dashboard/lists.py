"""The routes of what is listed and looked at one by one: requests, sessions, keys."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from agentspec.store.choices import choices
from agentspec.store.keys_report import keys_and_projects
from agentspec.store.requests import one, recent, some
from agentspec.store.session_list import calls_of, ids_of, session

from .cursor import parse_cursor
from .keys_page import usage_block
from .pages import Frame
from .serving import Site
from .session_page import shown
from .sheet import Block, Field

MOST_TURNS = 500
"""Requests of one session that its page shows."""
STATUSES = ("ok", "error", "cancelled", "lost")


def add(routes: APIRouter, site: Site) -> None:
    """Add them all."""
    _requests(routes, site)
    _one_request(routes, site)
    _one_session(routes, site)
    _keys(routes, site)


def _requests(routes: APIRouter, site: Site) -> None:
    @routes.get("/dashboard/requests")
    def requests(request: Request, before: str = "") -> Response:
        def render(frame: Frame) -> tuple[str, int]:
            view = site.view(request)
            size, after = site.pages.list_size, parse_cursor(before)
            with site.board.look(view.window, view.where) as look:
                # A session's rows have an index; for others the slice says whether they are few.
                where = look.where if "session_id" in look.where else look.slice.where
                rows = look.ask(recent, look.window, size + 1, where=where, before=after)
                offered = look.ask(choices)
            options = [("", "all"), *((name, name) for name in STATUSES)]
            fields = [
                Field("status", "Status", view.filters.get("status", ""), options),
                Field("session", "Session", view.filters.get("session", ""), hint="its id"),
            ]
            more = len(rows) > size
            return site.pages.requests(frame, view, rows[:size], more, fields, offered), 200

        return site.answer(request, render)


def _one_request(routes: APIRouter, site: Site) -> None:
    @routes.get("/dashboard/requests/{id:path}")
    def one_request(request: Request, id: str) -> Response:
        def render(frame: Frame) -> tuple[str, int]:
            view = site.view(request)
            kept = id.replace("\0", "\ufffd")
            with site.board.look(view.window) as look:
                record = look.ask(one, kept)
                calls = look.ask(calls_of, [kept]).get(kept, [])
            if record is None:
                hint = "A request gets its row when it ends."
                return site.pages.missing(frame, "request", id, hint), 404
            return site.pages.request(frame, record, calls), 200

        return site.answer(request, render)


def _one_session(routes: APIRouter, site: Site) -> None:
    @routes.get("/dashboard/sessions/{id:path}")
    def one_session(request: Request, id: str, key: str | None = None) -> Response:
        def render(frame: Frame) -> tuple[str, int]:
            view = site.view(request)
            kept = id.replace("\0", "\ufffd")
            with site.board.look(view.window) as look:
                found = look.ask(session, kept, key)
                ids = look.ask(ids_of, found, MOST_TURNS) if found else []
                rows = look.ask(some, ids)
                calls = look.ask(calls_of, ids)
            if found is None:
                hint = "A session is known once a request of it has ended."
                return site.pages.missing(frame, "session", id, hint), 404
            return site.pages.session(frame, **shown(found, rows, calls)), 200

        return site.answer(request, render)


def _keys(routes: APIRouter, site: Site) -> None:
    @routes.get("/dashboard/keys")
    def keys(request: Request) -> Response:
        def render(frame: Frame) -> tuple[str, int]:
            view = site.view(request)
            with site.board.look(view.window, view.where) as look:
                offered = look.ask(choices)
                found = look.ask(keys_and_projects, view.now_ms)
                look.take_sql()
                used = usage_block(look, view, found)
            return site.pages.keys(frame, view, found, used, offered), 200

        return site.answer(request, render)

    @routes.get("/dashboard/keys.csv")
    def table(request: Request, block: str = "") -> Response:
        def find() -> list[Block]:
            view = site.view(request, "/dashboard/keys")
            with site.board.look(view.window, view.where) as look:
                return [usage_block(look, view, look.ask(keys_and_projects, view.now_ms))]

        return site.csv(block, find)
