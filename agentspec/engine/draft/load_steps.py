"""The folder of an EAGLE-3 or MTP draft -> a drafter; what doesn't fit is refused by name.

Legend: U rows of draft logits.
Read next: ``step_config.py`` (layouts), ``steps.py`` (the drafter).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.llama import Llama

from .backbone import PAGE
from .draft_file import DraftFile, read_config
from .errors import UnsupportedDraft
from .heads import draft_ids
from .step_config import StepConfig, fitted_taps, step_config
from .step_torch import TorchStepBackbone
from .steps import StepDrafter

if TYPE_CHECKING:
    import numpy.typing as npt

    from agentspec.engine.runners import AnyRunner

    from .step_backbone import StepBackbone
    from .target import TargetFacts


def load_steps(
    path: Path,
    runner: AnyRunner,
    target: TargetFacts,
    *,
    name: str | None = None,
    head_rows: int | None = None,
    min_survival: float = 0.1,
) -> StepDrafter:
    """An EAGLE-3 or MTP draft. name: None: its method. head_rows: only the first so many token ids
    are drafted, where it has no shortlist of its own; None: all.

    Raises ``DraftMismatch``, ``UnsupportedDraft``, ``DraftError`` or ``WeightsError``.
    """
    config = step_config(read_config(path))
    taps = fitted_taps(config, target)
    if runner.page_tokens != PAGE:
        raise UnsupportedDraft(f"drafts need engine.page_tokens = {PAGE}")
    file = DraftFile(path)
    ids = draft_ids(config, file, head_rows)
    return StepDrafter(
        name or config.method,
        config,
        _backbone(config, file, runner, len(taps), ids),
        taps=taps,
        target_ids=torch.from_numpy(ids).long(),
        min_survival=min_survival,
    )


def _backbone(
    config: StepConfig, file: DraftFile, runner: AnyRunner, taps: int, ids: npt.NDArray
) -> StepBackbone:
    """ids: [U] tokens of the rows of logits."""
    sizes = {"taps": taps, "num_pages": runner.num_pages, "positions": runner.context_tokens}
    if isinstance(runner, ExactRunner):
        from .step_int8 import Int8StepBackbone

        return Int8StepBackbone(config, file, runner.model, runner.pool, ids, **sizes)
    if not isinstance(runner.model, Llama):
        raise UnsupportedDraft("drafts are served beside Llama targets only")
    return TorchStepBackbone(config, file, runner.model, ids, **sizes)
