"""Tokens and busy time of a backend's requests over a window, in groups or as one sum."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, Connection, func, select

from .parts import parts
from .rebuild import floors
from .rollup_schema import PLACE
from .schema import request
from .slices import Slice, bounded, sums
from .window import Window, total

GROUPS = ("model", "workload", "session_id", "key_id", "client", "status", "spec_arm", "id")
"""Columns by which a bill can be split."""
PRUNED = "(pruned)"
"""The group of those whose rows are gone."""
_IN_ROWS = ("session_id", "id")


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over requests. ``group``: the value of the column they are grouped by."""

    group: str = ""
    requests: int = 0
    in_tok: int = 0
    cached_tok: int = 0
    out_tok: int = 0
    reason_tok: int = 0
    forced_tok: int = 0
    spec_steps: int = 0
    spec_drafted: int = 0
    spec_accepted: int = 0
    busy_prefill_us: int = 0
    busy_decode_us: int = 0
    busy_draft_us: int = 0
    busy_grammar_us: int = 0

    @property
    def fresh_tok(self) -> int:
        return self.in_tok - self.cached_tok

    @property
    def rejected_tok(self) -> int:
        """Drafted tokens that verification did not accept."""
        return self.spec_drafted - self.spec_accepted

    @property
    def busy_us(self) -> int:
        return (
            self.busy_prefill_us + self.busy_decode_us + self.busy_draft_us + self.busy_grammar_us
        )


_SUMMED = [f.name for f in fields(Usage)][1:]


def usage(
    connection: Connection,
    window: Window,
    backend: str,
    *,
    by: str | None = None,
    more: ColumnElement[bool] | None = None,
) -> list[Usage]:
    """The sums of a backend's requests: one, or one a group of the column ``by`` (``GROUPS``), in
    the order of their names.

    more: a further condition on the rows. Read from the rollups where these can tell, so also of
    rows that were pruned.
    """
    if more is not None or by in _IN_ROWS:
        return _of_rows(connection, window, backend, by, more)
    slice = Slice(window, {"backend": backend}, floors(connection))
    found = sums(connection, slice, _SUMMED, by=() if by is None else (by,))
    return [Usage("".join(key), **values) for key, values in sorted(found.items())]


SUMMED = tuple(_SUMMED)
"""What ``Usage`` holds beside its group, for whoever asks for it with other sums at once."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """Of a window whose rows are partly gone. requests: those that only the rollups know.

    before_ms: rows before this time are gone. unread: stretches at the window's ends that no whole
    bucket of the rollups covers, so that nothing is known of them.
    """

    requests: int
    before_ms: int
    unread: tuple[Window, ...]


def pruned(connection: Connection, window: Window) -> Pruned | None:
    """What rows can't tell of the window any more; None where all of them are there."""
    known = floors(connection)
    before_ms = known.get("request", 0)
    if before_ms <= window.since_ms:
        return None
    (everything,) = sums(connection, Slice(window, {}, known), ("requests",)).values()
    there = connection.execute(select(func.count()).where(window.rows())).scalar_one()
    unread = tuple(
        part.window
        for part in parts(window, PLACE, known)
        if part.level is None and part.window.since_ms < before_ms
    )
    gone = everything["requests"] - there
    return Pruned(gone, before_ms, unread) if gone or unread else None


def with_rest(whole: Usage, groups: list[Usage]) -> list[Usage]:
    """The groups, and what of the whole belongs to none of them as one more."""
    rest = {n: getattr(whole, n) - sum(getattr(g, n) for g in groups) for n in _SUMMED}
    return [*groups, Usage(PRUNED, **rest)] if rest["requests"] > 0 else groups


def untold(connection: Connection, window: Window, backend: str) -> int:
    """Requests with output whose backend told no busy time."""
    c = request.c
    busy = c.busy_prefill_us + c.busy_decode_us + c.busy_draft_us + c.busy_grammar_us
    query = select(func.count()).where(
        window.rows(), c.backend == backend, c.out_tok > 0, busy == 0
    )
    return connection.execute(query).scalar_one()


def _of_rows(
    connection: Connection,
    window: Window,
    backend: str,
    by: str | None,
    more: ColumnElement[bool] | None,
) -> list[Usage]:
    c = request.c
    query = select(
        func.count().label("requests"),
        *(total(bounded(c[name])).label(name) for name in _SUMMED[1:]),
    ).where(window.rows(), c.backend == backend)
    if more is not None:
        query = query.where(more)
    if by is not None:
        query = query.add_columns(c[by].label("group")).group_by(c[by]).order_by(c[by])
    return [Usage(**row._asdict()) for row in connection.execute(query)]
