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

    if settings.tensor_parallel > 1 or settings.device != "cpu" or settings.exact:
        return _of_torch(settings, path, taps)
    if settings.dtype not in ("auto", "int8"):
        return Runner.load(settings, path, taps=taps)
    try:
        return ExactRunner.load(settings, path, taps=taps)
    except (Unavailable, UnsupportedModel) as error:
        if settings.dtype == "int8":
            raise
        _log.warning("exact CPU kernels not used (%s); serving with torch bf16, not exact", error)
        return Runner.load(settings, path, taps=taps)


def _of_torch(settings: EngineSettings, path: Path, taps: Sequence[int]) -> Runner:
    """A runner that only stock torch and the Triton kernels give: a GPU's, or of several ranks."""
    from .model.shard import Shard
    from .parallel import ParallelRunner
    from .runner import Runner

    if settings.dtype == "int8":
        raise UnsupportedModel(
            'engine.dtype = "int8" runs on one CPU process: it goes neither with engine.device = '
            '"cuda" nor with engine.tensor_parallel nor with engine.exact (it is exact by itself)'
        )
    if settings.tensor_parallel > 1:
        return ParallelRunner.start(settings, path, taps=taps)
    shard = Shard(exact=settings.exact)
    return Runner.load(settings, path, device=settings.device, taps=taps, shard=shard)
