"""A page's own parameters, read and checked."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Protocol


class BadParameter(Exception):
    """A parameter in the URL that means nothing; the message names it."""


class Asked(Protocol):
    """What has parameters (a ``View``)."""

    @property
    def params(self) -> Mapping[str, str]: ...


def positive(view: Asked, name: str, default: float | None = None) -> float | None:
    """A number above 0. Raises ``BadParameter``."""
    told = view.params.get(name, "")
    if not told:
        return default
    try:
        value = float(told)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise BadParameter(f"'{name}' should be a number above 0, not '{told[:60]}'.")
    return value


def whole(name: str, told: str, least: int, most: int) -> int:
    """A whole number of that range; 0 where nothing is told. Raises ``BadParameter``."""
    if not told:
        return 0
    if not (told.isascii() and told.isdigit() and len(told) < 10 and least <= int(told) <= most):
        raise BadParameter(
            f"'{name}' should be a number from {least} to {most}, not '{told[:60]}'."
        )
    return int(told)


def one_of(view: Asked, name: str, allowed: Collection[str], default: str) -> str:
    """One of these words. Raises ``BadParameter``."""
    told = view.params.get(name, "") or default
    if told not in allowed:
        raise BadParameter(
            f"'{name}' should be one of {', '.join(sorted(allowed))}, not '{told[:60]}'."
        )
    return told
