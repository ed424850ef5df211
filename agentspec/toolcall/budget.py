"""So many steps for one check: references may multiply along a deep value."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

MAX_STEPS = 200_000
_left: ContextVar[list[int] | None] = ContextVar("steps_left", default=None)
Keyword = Callable[[Any, Any, Any, Any], Any]


class TooManySteps(Exception):
    """A check went through more subschemas than one value may take."""


@contextmanager
def bounded(steps: int = MAX_STEPS) -> Iterator[None]:
    """Within it counted keywords raise ``TooManySteps`` after so many steps."""
    token = _left.set([steps])
    try:
        yield
    finally:
        _left.reset(token)


def counted(keyword: Keyword) -> Keyword:
    """A ``jsonschema`` keyword that costs a step."""

    def run(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        left = _left.get()
        if left is not None:
            left[0] -= 1
            if left[0] < 0:
                raise TooManySteps
        yield from keyword(validator, value, instance, schema) or ()

    return run
