"""What a page is made of: numbers, notes, and blocks: a table each, most of them drawn as well.

A table holds values, not text: the page shows them formatted, its CSV as they are.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from .charts import Layer
from .text import UNKNOWN
from .tiles import Tile


@dataclass(frozen=True, slots=True)
class Column:
    """title: on the page; name: in the CSV, with its unit; form: a value as text."""

    title: str
    name: str
    form: Callable[[Any], str] | None = None

    @property
    def number(self) -> bool:
        return self.form is not None

    def text(self, value: Any) -> str:
        if value is None:
            return UNKNOWN
        return self.form(value) if self.form else str(value) or "(none)"


@dataclass(frozen=True, slots=True)
class Block:
    """One question answered. links: of each row's first cell, "" for none. empty: said instead of
    picture and table where there is nothing to tell. rows_url: the requests behind it. chart: a
    Vega-Lite specification that is drawn instead of the picture where scripts run."""

    slug: str
    title: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Any]]
    picture: Markup | None = None
    legend: Sequence[Layer] = field(default_factory=list)
    empty: str = ""
    links: Sequence[str] = field(default_factory=list)
    sql: Sequence[str] = field(default_factory=tuple)
    rows_url: str = ""
    chart: str = ""

    @property
    def texts(self) -> list[list[str]]:
        """The table's cells as they are shown."""
        return [
            [column.text(value) for column, value in zip(self.columns, row, strict=True)]
            for row in self.rows
        ]


@dataclass(frozen=True, slots=True)
class Field:
    """A parameter of a page that its form asks for. options: (value, title), or none: free text."""

    name: str
    title: str
    value: str
    options: Sequence[tuple[str, str]] = field(default_factory=list)
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A page's content. notes: what the reader should be warned of. older: where a list goes on."""

    title: str
    intro: str
    tiles: Sequence[Tile] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)
    blocks: Sequence[Block] = field(default_factory=list)
    fields: Sequence[Field] = field(default_factory=list)
    older: str = ""


def csv_text(block: Block) -> str:
    """The block's table with its values as they are; one that isn't known is empty.

    A text that a spreadsheet would take for a formula is marked as text with an apostrophe.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow([column.name for column in block.columns])
    for row in block.rows:
        writer.writerow([_plain(value) for value in row])
    return out.getvalue()


def _plain(value: Any) -> Any:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return "" if value is None else value
