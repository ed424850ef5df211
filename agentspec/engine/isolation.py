"""One sequence's exception ends that sequence, not the step."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .sequence import Sequence

_log = logging.getLogger(__name__)


@contextmanager
def isolated(*sequences: Sequence) -> Iterator[None]:
    """An exception in the block is logged and ends ``sequences`` with "error" and its message."""
    try:
        yield
    except Exception as error:
        ids = ", ".join(sequence.request.id for sequence in sequences)
        _log.error("failed: %s", ids, exc_info=error)
        for sequence in sequences:
            sequence.finish("error", f"{type(error).__name__}: {error}")
