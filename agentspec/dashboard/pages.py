"""From answers to HTML: the templates and what they are given."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

import jinja2
from markupsafe import Markup

from agentspec.settings import DEFAULT_MODEL
from agentspec.store.keys_report import KeysOverview
from agentspec.store.reader import Overview
from agentspec.store.record import CallRecord, RequestRecord

from . import text
from .assets import ASSETS, asset
from .cursor import cursor
from .decision import explained
from .detail import detail
from .ranges import RANGES
from .sheet import Block, Field, Sheet
from .svg import drawing, percent, tag
from .tiles import tiles
from .view import FILTERS, View

MENU = {
    "/dashboard": "Overview",
    "/dashboard/speculation": "Speculation",
    "/dashboard/load": "Load",
    "/dashboard/cost": "Cost",
    "/dashboard/latency": "Latency",
    "/dashboard/cache": "Cache",
    "/dashboard/structured": "Structured output",
    "/dashboard/routing": "Routing",
    "/dashboard/sessions": "Sessions",
    "/dashboard/requests": "Requests",
    "/dashboard/engines": "Engines",
    "/dashboard/keys": "Keys",
    "/dashboard/explore": "Explore",
}


@dataclass(frozen=True, slots=True)
class Frame:
    """theme: "light", "dark", or "" for the system's; here: the page's path and query."""

    theme: str
    here: str

    @property
    def back(self) -> str:
        """The query by which a change of colours comes back here."""
        return "?" + urlencode({"next": self.here})


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
            menu=MENU,
            filters=FILTERS,
            assets={name: asset(name) for name in ASSETS},
            script=script,
            request_url=request_url,
            length=accepted_length,
        )

    def overview(
        self,
        frame: Frame,
        view: View,
        found: Overview,
        blocks: Sequence[Block],
        choices: Mapping[str, Sequence[str]],
        base_url: str,
    ) -> str:
        """The first page. ``base_url``: where clients reach the gateway, for the example."""
        return self._render(
            "overview.html",
            frame=frame,
            view=view,
            tiles=tiles(found),
            blocks=blocks,
            rows=found.recent,
            choices=choices,
            example=example(base_url),
        )

    def sheet(
        self, frame: Frame, view: View, sheet: Sheet, choices: Mapping[str, Sequence[str]]
    ) -> str:
        """A page of blocks."""
        return self._render("sheet.html", frame=frame, view=view, sheet=sheet, choices=choices)

    def requests(
        self,
        frame: Frame,
        view: View,
        rows: list[RequestRecord],
        more: bool,
        fields: Sequence[Field],
        choices: Mapping[str, Sequence[str]],
    ) -> str:
        """A page of the list; ``more``: there are further ones behind it."""
        return self._render(
            "requests.html",
            frame=frame,
            view=view,
            rows=rows,
            fields=fields,
            choices=choices,
            older=view.url(None, before=cursor(rows[-1])) if more else "",
        )

    def request(self, frame: Frame, record: RequestRecord, calls: Sequence[CallRecord]) -> str:
        """Everything about one request."""
        shown = detail(record)
        session = f"/dashboard/sessions/{quote(record.session_id, safe='')}"
        if record.key_id:
            session += "?" + urlencode({"key": record.key_id})
        return self._render(
            "request.html",
            frame=frame,
            path="/dashboard/requests",
            record=record,
            detail=shown,
            calls=calls,
            decision=explained(record.decision),
            timeline=timeline(shown.phases),
            session_url=session,
        )

    def session(self, frame: Frame, **values: object) -> str:
        """One session of an agent."""
        return self._render("session.html", frame=frame, path="/dashboard/sessions", **values)

    def keys(
        self,
        frame: Frame,
        view: View,
        found: KeysOverview,
        used: Block,
        choices: Mapping[str, Sequence[str]],
    ) -> str:
        """Keys and projects, how much of their limits is used, and what was used in a range."""
        return self._render(
            "keys.html",
            frame=frame,
            view=view,
            keys=found.keys,
            projects=found.projects,
            used=used,
            choices=choices,
        )

    def missing(self, frame: Frame, what: str, id: str, hint: str) -> str:
        return self._render("missing.html", frame=frame, what=what, id=id, hint=hint)

    def failure(self, frame: Frame, message: str) -> str:
        """The page while the ledger cannot be read."""
        hint = "Requests are served all the same and wait in their journals."
        title = "The ledger cannot be read"
        return self._render("failure.html", frame=frame, title=title, message=message, hint=hint)

    def refusal(self, frame: Frame, message: str) -> str:
        """The page for what cannot be asked for."""
        hint = "Mend the address, or start from the page without filters."
        title = "This cannot be shown"
        return self._render("failure.html", frame=frame, title=title, message=message, hint=hint)

    def _render(self, template: str, **values: object) -> str:
        return self._environment.get_template(template).render(**values)


def script(name: str) -> Markup:
    """The element that runs a script of ours or a vendored one, and no other in its place."""
    found = asset(name)
    return tag("script", src=found.url, integrity=found.integrity, defer="")


def request_url(record: RequestRecord) -> str:
    return f"/dashboard/requests/{quote(record.id, safe='')}"


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
