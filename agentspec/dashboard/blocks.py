"""Blocks out of answers: what the pages' builders have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from agentspec.store.board import Look
from agentspec.store.grouping import TooManyRows

from . import text
from .charts import Columns, Layer, grouped
from .figures import rows_of, thin
from .sheet import Block, Column


def asked(look: Look, block: Block, rows_url: str = "") -> Block:
    """The block with the SQL run since the last one, and a link to the rows."""
    return replace(block, sql=look.take_sql(), rows_url=rows_url or block.rows_url)


def where_told(look: Look, slug: str, title: str, build: Callable[[], Block]) -> Block:
    """The block that ``build`` makes, with its SQL; where too many rows would have to be read for
    it, one that says so, so that the rest of the page stands."""
    try:
        return asked(look, build())
    except TooManyRows as error:
        return asked(look, Block(slug, title, "Not told here.", [], [], empty=str(error)))


def number(title: str, name: str) -> Column:
    return Column(title, name, text.exact)


def share(title: str, name: str) -> Column:
    return Column(title, name, text.share)


def money(title: str, name: str) -> Column:
    return Column(title, name, text.usd)


def time_ms(title: str, name: str) -> Column:
    return Column(title, name, text.duration)


def decimal(title: str, name: str) -> Column:
    return Column(title, name, text.decimal)


def label(title: str, name: str) -> Column:
    return Column(title, name)


def ratio(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def bars(
    slug: str,
    title: str,
    caption: str,
    columns: Sequence[Column],
    names: Sequence[str],
    layers: Sequence[Layer],
    form: Callable[[Any], str],
    *,
    empty: str = "",
) -> Block:
    """Bars side by side over names, with their table."""
    axis = Columns(list(names), thin(list(names)))
    picture = grouped(title, axis, layers, form, whole=form in text.WHOLE)
    legend = layers if len(layers) > 1 else []
    return Block(slug, title, caption, columns, rows_of(axis, layers), picture, legend, empty)
