"""From answers to HTML: the templates and what they are given."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from agentspec.settings import DEFAULT_MODEL, PoolSettings
from agentspec.store.glance import Glance
from agentspec.store.keys_report import KeysOverview
from agentspec.store.reader import Overview
from agentspec.store.record import RequestRecord
from agentspec.store.requests import Filters
from agentspec.store.window import Window

from . import cost_page, text
from .assets import ASSETS, asset_url
from .cursor import cursor
from .detail import detail
from .figures import figures
from .ranges import RANGES, Range
from .svg import drawing, percent, tag
from .tiles import tiles


class Pages:
    """Renders pages. Everything from the ledger is escaped by the templates."""

    list_size = 100

    def __init__(self) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
            autoescape=True,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        self._environment.globals.update(
            text=text,
            ranges=RANGES,
            assets={name: asset_url(name) for name in ASSETS},
            request_url=request_url,
            list_url=list_url,
            length=accepted_length,
        )

    def overview(self, found: Overview, chosen: Range, now_ms: int, base_url: str) -> str:
        """The first page. ``base_url``: where clients reach the gateway, for the example."""
        return self._render(
            "overview.html",
            path="/dashboard",
            chosen=chosen,
            now_ms=now_ms,
            tiles=tiles(found),
            figures=figures(found, chosen) if found.totals.requests else [],
            places=found.places,
            rows=found.recent,
            example=example(base_url),
        )

    def requests(
        self, rows: list[RequestRecord], more: bool, chosen: Range, now_ms: int, filters: Filters
    ) -> str:
        """A page of the list; ``more``: there are further ones behind it."""
        return self._render(
            "requests.html",
            path="/dashboard/requests",
            chosen=chosen,
            now_ms=now_ms,
            rows=rows,
            filters=active(filters),
            older=list_url(chosen, before=cursor(rows[-1]), **active(filters)) if more else "",
        )

    def request(self, record: RequestRecord) -> str:
        """Everything about one request."""
        shown = detail(record)
        return self._render(
            "request.html",
            record=record,
            detail=shown,
            timeline=timeline(shown.phases),
            session_url=list_url(RANGES[-1], session=record.session_id),
        )

    def cost(
        self, found: Glance, pools: Mapping[str, PoolSettings], chosen: Range, window: Window
    ) -> str:
        """What the window cost."""
        return self._render(
            "cost.html",
            path="/dashboard/cost",
            chosen=chosen,
            until_ms=window.until_ms,
            tiles=cost_page.tiles(found),
            pools=cost_page.pool_tables(found, pools),
            billed=found.billed,
        )

    def keys(self, found: KeysOverview, now_ms: int) -> str:
        """Keys and projects, and how much of their limits is used."""
        return self._render(
            "keys.html",
            path="/dashboard/keys",
            keys=found.keys,
            projects=found.projects,
            now_ms=now_ms,
        )

    def missing(self, id: str) -> str:
        return self._render("missing.html", id=id)

    def failure(self, message: str) -> str:
        """The page while the ledger cannot be read."""
        return self._render("failure.html", message=message)

    def _render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(**values)


def request_url(record: RequestRecord) -> str:
    return f"/dashboard/requests/{quote(record.id, safe='')}"


def list_url(chosen: Range, **parameters: str) -> str:
    """The list of requests with those filters (see ``active``)."""
    return "/dashboard/requests?" + urlencode({"range": chosen.name, **parameters})


def active(filters: Filters) -> dict[str, str]:
    """The filters that filter, under their names in the URL."""
    named = {
        "session": filters.session_id,
        "model": filters.model,
        "backend": filters.backend,
        "status": filters.status,
    }
    return {name: value for name, value in named.items() if value}


def accepted_length(steps: int, accepted: int) -> str:
    return text.decimal(1 + accepted / steps if steps else None)


def timeline(phases: list[tuple[str, str, float]]) -> Markup | None:
    """The phases of one request as one bar."""
    whole = sum(ms for _, _, ms in phases)
    if not whole:
        return None
    parts, at = [], 0.0
    for name, color, ms in phases:
        width = 100 * ms / whole
        bar = tag("rect", class_=f"bar {color}", x=percent(at), width=percent(width), height=28)
        parts.append(tag("g", tag("title", f"{name}: {text.duration(ms)}"), bar))
        at += width
    label = ", ".join(f"{name} {text.duration(ms)}" for name, _, ms in phases)
    return drawing(label, *parts, height=28)


def example(base_url: str) -> str:
    """The command that makes the first request."""
    body = {"model": DEFAULT_MODEL, "messages": [{"role": "user", "content": "Say hello."}]}
    return (
        f"curl {base_url.rstrip('/')}/v1/chat/completions \\\n"
        "  -H 'Content-Type: application/json' \\\n"
        f"  -d '{json.dumps(body)}'"
    )
