"""What a page is asked for, all of it in its URL: a range of time, filters, its own parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from agentspec.store.window import Window

from .ranges import Range, parse_range

FILTERS = {
    "model": "model",
    "backend": "backend",
    "workload": "workload",
    "client": "client",
    "key": "key_id",
    "project": "project",
}
"""Name in the URL -> column of ``request`` (or a project): the filters that every page takes."""

LIST_FILTERS = FILTERS | {"session": "session_id", "status": "status"}
"""Those that a list of requests takes."""

LONGEST = 500
"""Characters of a value; the ledger keeps no longer ones."""


@dataclass(frozen=True, slots=True)
class View:
    """filters: name in the URL -> value; params: the page's own, by name. None of them is empty."""

    path: str
    chosen: Range
    now_ms: int
    filters: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)

    @property
    def window(self) -> Window:
        return self.chosen.window(self.now_ms)

    @property
    def where(self) -> dict[str, str]:
        """Column -> value."""
        return {LIST_FILTERS[name]: value for name, value in self.filters.items()}

    def url(self, path: str | None = None, /, **changes: str) -> str:
        """The same view on a page, with other values; "" drops one. Another page's URL leaves this
        one's own parameters, and filters that not every page takes, out."""
        here = path is None or path == self.path
        kept = {"range": self.chosen.name}
        kept |= {n: v for n, v in self.filters.items() if here or n in FILTERS}
        kept |= {**(self.params if here else {}), **changes}
        return f"{path or self.path}?{urlencode({n: v for n, v in kept.items() if v})}"

    def rows(self, **changes: str) -> str:
        """The list of the requests behind what is shown; filters it doesn't take are left out."""
        kept = {n: v for n, v in self.filters.items() if n in LIST_FILTERS} | changes
        values = {"range": self.chosen.name, **kept}
        return "/dashboard/requests?" + urlencode({n: v for n, v in values.items() if v})

    def request(self, id: str) -> str:
        """The page of one request."""
        return f"/dashboard/requests/{quote(id, safe='')}"

    def session(self, id: str, key_id: str = "") -> str:
        """The page of one session."""
        key = "?" + urlencode({"key": key_id}) if key_id else ""
        return f"/dashboard/sessions/{quote(id, safe='')}{key}"

    def csv(self, slug: str) -> str:
        page = "/dashboard/overview" if self.path == "/dashboard" else self.path
        return self.url(f"{page}.csv", **dict(self.filters), **dict(self.params), block=slug)


def parse_view(path: str, query: Mapping[str, str], now_ms: int) -> View:
    """The view that a URL's parameters ask for; what is no filter is a parameter of the page."""
    values = {n: v[:LONGEST] for n, v in query.items() if v and len(n) <= 32}
    filters = {n: v for n, v in values.items() if n in LIST_FILTERS}
    params = {n: v for n, v in values.items() if n not in LIST_FILTERS and n not in _OWN}
    return View(path, parse_range(values.get("range", "")), now_ms, filters, params)


_OWN = ("range", "block", "before")
