"""What a page is asked for, all of it in its URL: a range of time, filters, its own parameters."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from agentspec.store.window import Window

from .params import BadParameter, whole
from .ranges import RANGES, Range, parse_range

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

NONE = "(none)"
"""The value of a filter for requests that have none: no key, or no backend since they ran nowhere.
Tables show the empty text so. A project is made of keys and has no such value."""

LONGEST = 500
"""Characters of a value; the ledger keeps no longer ones."""

_OWN = ("range", "refresh", "block", "before")
_REFRESH_S = (5, 3600)
"""How often a page may be asked to refresh itself, seconds."""


@dataclass(frozen=True, slots=True)
class View:
    """filters: name in the URL -> value; params: the page's own, by name. None of them is empty.

    refresh_s: how often the page refreshes itself; 0: it doesn't.
    """

    path: str
    chosen: Range
    now_ms: int
    filters: Mapping[str, str] = field(default_factory=dict)
    params: Mapping[str, str] = field(default_factory=dict)
    refresh_s: int = 0

    @property
    def window(self) -> Window:
        return self.chosen.window(self.now_ms)

    @property
    def where(self) -> dict[str, str]:
        """Column -> value, "" for one that is not known."""
        return {
            LIST_FILTERS[name]: "" if value == NONE and name != "project" else value
            for name, value in self.filters.items()
        }

    def url(self, path: str | None = None, /, **changes: str) -> str:
        """The same view on a page, with other values; "" drops one. Another page's URL leaves this
        one's own parameters, and filters that not every page takes, out."""
        here = path is None or path == self.path
        kept = {"range": self.chosen.name, "refresh": str(self.refresh_s or "")}
        kept |= {n: v for n, v in self.filters.items() if here or n in FILTERS}
        kept |= {**(self.params if here else {}), **changes}
        return f"{path or self.path}?{urlencode({n: v for n, v in kept.items() if v})}"

    def rows(self, **changes: str) -> str:
        """The list of the requests behind what is shown, those of a row of a table: "" is a value
        that they don't have, as the table says it."""
        values = {"range": self.chosen.name, **self.filters}
        values |= {name: value or NONE for name, value in changes.items()}
        return "/dashboard/requests?" + urlencode(values)

    def request(self, id: str) -> str:
        """The page of one request."""
        return f"/dashboard/requests/{quote(id, safe='')}"

    def session(self, id: str, key_id: str = "") -> str:
        """The page of one session."""
        key = "?" + urlencode({"key": key_id}) if key_id else ""
        return f"/dashboard/sessions/{quote(id, safe='')}{key}"

    def csv(self, slug: str) -> str:
        page = "/dashboard/overview" if self.path == "/dashboard" else self.path
        told = {**self.filters, **self.params, "refresh": "", "block": slug}
        return self.url(f"{page}.csv", **told)


def parse_view(path: str, query: Mapping[str, str], now_ms: int, own: Collection[str] = ()) -> View:
    """The view that a URL's parameters ask for. own: names of the page's own parameters.

    Raises ``BadParameter`` for a name that the page doesn't take, and for a range or a pace that
    there is not: a page that left a mistyped filter aside would show everything as if it were the
    answer.
    """
    values = {n: v[:LONGEST] for n, v in query.items() if v}
    for name in values:
        if name not in LIST_FILTERS and name not in _OWN and name not in own:
            known = ", ".join(sorted({*LIST_FILTERS, *own, "range"}))
            raise BadParameter(f"'{name[:60]}' is nothing that this page can be asked: {known}.")
    told = values.get("range", "")
    if told and told not in {one.name for one in RANGES}:
        known = ", ".join(one.name for one in RANGES)
        raise BadParameter(f"'range' should be one of {known}, not '{told[:60]}'.")
    filters = {n: v for n, v in values.items() if n in LIST_FILTERS}
    params = {n: v for n, v in values.items() if n in own}
    refresh_s = whole("refresh", values.get("refresh", ""), *_REFRESH_S)
    return View(path, parse_range(told), now_ms, filters, params, refresh_s)
