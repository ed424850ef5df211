"""Which runner serves a model here: our exact CPU kernels where they can run, else stock torch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from agentspec.settings import EngineSettings

from .model.errors import UnsupportedModel

if TYPE_CHECKING:
    from .exact_runner import ExactRunner
    from .runner import Runner

    AnyRunner: TypeAlias = Runner | ExactRunner

_log = logging.getLogger(__name__)


def open_runner(settings: EngineSettings, path: Path, *, taps: Sequence[int] = ()) -> AnyRunner:
    """The runner of ``settings.dtype``: "int8" is the exact kernels, "auto" prefers them.

    Raises ``UnsupportedModel`` or ``WeightsError``, and ``Unavailable`` for "int8" where the
    kernels can't be built. With "auto" that is one warning and stock torch in bf16, not exact.
    """
    from .exact_runner import ExactRunner, Unavailable
    from .runner import Runner

    if settings.dtype not in ("auto", "int8"):
        return Runner.load(settings, path, taps=taps)
    try:
        return ExactRunner.load(settings, path, taps=taps)
    except (Unavailable, UnsupportedModel) as error:
        if settings.dtype == "int8":
            raise
        _log.warning("exact CPU kernels not used (%s); serving with torch bf16, not exact", error)
        return Runner.load(settings, path, taps=taps)
