"""Tokens and busy time of a backend's requests over a window, in groups or as one sum."""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import ColumnElement, Connection, and_, case, func, select

from .schema import request
from .window import Window, total

GROUPS = ("model", "workload", "session_id", "key_id", "client", "status", "spec_arm", "id")
"""Columns by which a bill can be split."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Sums over requests. ``group``: the value of the column they are grouped by.

    untold: requests that have output, but no busy time (their backend doesn't tell).
    """

    group: str = ""
    requests: int = 0
    untold: int = 0
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


_SUMMED = [f.name for f in fields(Usage)][3:]


def usage(
    connection: Connection,
    window: Window,
    backend: str,
    *,
    by: str | None = None,
    more: ColumnElement[bool] | None = None,
) -> list[Usage]:
    """The sums of a backend's requests: one, or one a group of the column ``by`` (``GROUPS``).

    more: a further condition on the rows. Groups come in the order of their names.
    """
    c = request.c
    busy = c.busy_prefill_us + c.busy_decode_us + c.busy_draft_us + c.busy_grammar_us
    query = select(
        func.count().label("requests"),
        total(case((and_(c.out_tok > 0, busy == 0), 1), else_=0)).label("untold"),
        *(total(c[name]).label(name) for name in _SUMMED),
    ).where(window.rows(), c.backend == backend)
    if more is not None:
        query = query.where(more)
    if by is not None:
        assert by in GROUPS, f"no such group: {by}"
        group = func.coalesce(c[by], "")
        query = query.add_columns(group.label("group")).group_by(group).order_by(group)
    return [Usage(**row._asdict()) for row in connection.execute(query)]
