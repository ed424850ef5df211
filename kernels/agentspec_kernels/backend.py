"""How an op chooses its implementation: by the device of its tensors, or by name.

Every op names its implementations in one table. ``reference`` is the definition, ``torch`` the
stock torch path that runs anywhere; a compiled one is added to the op's table under ``cpp`` or
``triton`` and is then preferred on its device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

Implementation = TypeVar("Implementation", bound=Callable)

PREFERENCE: Mapping[str, tuple[str, ...]] = {
    "cpu": ("cpp", "torch", "reference"),
    "cuda": ("triton", "torch", "reference"),
}
_ANYWHERE = ("torch", "reference")


class UnknownBackend(ValueError):
    """An op has no implementation of the name that was asked for."""


def pick(
    op: str, table: Mapping[str, Implementation], backend: str | None, device_type: str
) -> Implementation:
    """The implementation named ``backend``, or (None) the preferred one on ``device_type``.

    Raises ``UnknownBackend`` when ``table`` has no such name.
    """
    if backend is None:
        backend = next(b for b in PREFERENCE.get(device_type, _ANYWHERE) if b in table)
    try:
        return table[backend]
    except KeyError:
        raise UnknownBackend(
            f"{op} has no backend '{backend}'; it has: {', '.join(sorted(table))}"
        ) from None
