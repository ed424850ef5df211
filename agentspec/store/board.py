"""Several questions about one slice of the ledger, of one snapshot, each with the SQL it ran."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, event

from .grouping import readable
from .projects import of_projects
from .reader import Reader
from .rebuild import floors
from .slices import Slice
from .window import Where, Window

P = ParamSpec("P")
T = TypeVar("T")


class Look:
    """One snapshot of the database. where: the filters, column -> value; sql: what was run for the
    questions since ``take_sql``, values in place, to be run as it is."""

    def __init__(self, connection: Connection, window: Window, where: Where):
        self._connection = connection
        self.window = window
        self.where = where
        self._ran: list[Any] = []
        event.listen(connection, "before_execute", self._note)

    @cached_property
    def slice(self) -> Slice:
        """The window and its filters for sums. Raises ``TooManyRows``."""
        return self.aside(_slice, self.window, self.where)

    def ask(
        self,
        question: Callable[Concatenate[Connection, P], T],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """The answer of a function of ``store`` whose first parameter is a connection."""
        return question(self._connection, *args, **options)

    def take_sql(self) -> tuple[str, ...]:
        """The statements run since this was last called, each once, in order."""
        ran, self._ran = self._ran, []
        return tuple(dict.fromkeys(self._told(one) for one in ran))

    def aside(self, question: Callable[..., T], *args: Any) -> T:
        """As ``ask``, for what is no part of the answer: its SQL is not noted."""
        noted = len(self._ran)
        answer = question(self._connection, *args)
        del self._ran[noted:]
        return answer

    def _told(self, statement: Any) -> str:
        dialect, options = self._connection.dialect, {"literal_binds": True}
        return str(statement.compile(dialect=dialect, compile_kwargs=options))

    def _note(self, connection: Connection, statement: Any, *_: object) -> None:
        self._ran.append(statement)


def _slice(connection: Connection, window: Window, where: Where) -> Slice:
    return readable(connection, Slice(window, where, floors(connection)), set(where))


class Board(Reader):
    """A ``Reader`` that also takes questions one by one."""

    @contextmanager
    def look(self, window: Window, where: Mapping[str, str] | None = None) -> Iterator[Look]:
        """where: column -> value; "project" means the keys that are now in it. Raises as
        ``Reader``'s questions do."""
        kept = {name: value.replace("\0", "\ufffd") for name, value in (where or {}).items()}
        with self._snapshot() as connection:
            yield Look(connection, window, of_projects(connection, kept))
