"""Sums over a slice in groups, also where no rollup tells all of the properties apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from .errors import StoreError
from .rollup_schema import CUBES
from .slices import Slice, sums

SCANNED = 100_000
"""Up to so many requests of a window are read one by one for a single question."""

Groups = dict[tuple, dict[str, int]]


class TooManyRows(StoreError):
    """A question that only single rows answer, over too many of them."""

    code = "too_many_rows"


def readable(connection: Connection, slice: Slice, names: set[str]) -> Slice:
    """The slice, to be read from its rows where no rollup tells all of these columns apart.

    Raises ``TooManyRows`` where the window has more than ``SCANNED`` requests then.
    """
    if slice.rows or any(names <= set(cube) for cube in CUBES.values()):
        return slice
    whole = Slice(slice.window, {}, slice.floors)
    (found,) = sums(connection, whole, ("requests",)).values()
    if found["requests"] > SCANNED:
        raise TooManyRows(
            f"Only single rows tell {', '.join(sorted(names))} apart together, and the range has "
            f"{found['requests']:,} of them: choose a shorter range, or fewer filters."
        )
    return replace(slice, rows=True)


def grouped(
    connection: Connection,
    slice: Slice,
    names: Sequence[str],
    *,
    by: Sequence[str] = (),
    bucket_ms: int | None = None,
) -> Groups:
    """As ``slices.sums``, for any text columns of ``request``. Raises ``TooManyRows``."""
    fit = readable(connection, slice, {*by, *slice.where})
    return sums(connection, fit, names, by=by, bucket_ms=bucket_ms)
