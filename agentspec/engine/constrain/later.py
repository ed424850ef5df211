"""A grammar that is built while the answer's beginning is computed.

Only where it is sure to compile and not needed at once: calls that may be made, behind free text.
Building holds the interpreter for milliseconds, so it begins behind the first token of a short
prompt, or in a long one's passes, which don't; whoever needs it before builds it at once.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from .base import Constraint, ConstraintViolated

_DELAY_S = 0.05
_log = logging.getLogger(__name__)


class Later:
    """The session at a grammar's start, built once; thread-safe. build may raise anything."""

    def __init__(self, build: Callable[[], Constraint], delay_s: float = _DELAY_S):
        self._build = build
        self._lock = threading.Lock()
        self._made: Constraint | None = None
        timer = threading.Timer(delay_s, self._ahead)
        timer.daemon = True
        timer.start()

    def session(self) -> Constraint:
        """A new session. Raises ``ConstraintViolated`` where it cannot be built."""
        try:
            return self._prototype().clone()
        except ConstraintViolated:
            raise
        except Exception as error:
            raise ConstraintViolated(f"the tools' grammar was not built: {error}") from error

    def _prototype(self) -> Constraint:
        with self._lock:
            if self._made is None:
                self._made = self._build()
            return self._made

    def _ahead(self) -> None:
        try:
            self._prototype()
        except Exception as error:  # raised to whoever asks for it
            _log.warning("the grammar of tools could not be built ahead: %s", error)
