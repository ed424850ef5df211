"""The folder of an EAGLE-3 or MTP draft -> a drafter; what doesn't fit is refused by name.

Legend: U rows of draft logits.
Read next: ``step_config.py`` (layouts), ``steps.py`` (the drafter).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.errors import WeightsError
from agentspec.engine.model.llama import Llama

from .backbone import PAGE
from .draft_file import DraftFile, read_config
from .errors import UnsupportedDraft
from .step_config import StepConfig, fitted_taps, step_config
from .step_torch import TorchStepBackbone
from .steps import StepDrafter

if TYPE_CHECKING:
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
    are drafted, where lm_head is the target's; None: all.

    Raises ``DraftMismatch``, ``UnsupportedDraft``, ``DraftError`` or ``WeightsError``.
    """
    config = step_config(read_config(path))
    taps = fitted_taps(config, target)
    if runner.page_tokens != PAGE:
        raise UnsupportedDraft(f"drafts need engine.page_tokens = {PAGE}")
    file = DraftFile(path)
    rows = min(head_rows or config.shape.vocab, config.shape.vocab)
    return StepDrafter(
        name or config.method,
        config,
        _backbone(config, file, runner, len(taps), rows),
        taps=taps,
        target_ids=_target_ids(config, file),
        min_survival=min_survival,
    )


def _backbone(
    config: StepConfig, file: DraftFile, runner: AnyRunner, taps: int, head_rows: int
) -> StepBackbone:
    sizes = {
        "taps": taps,
        "num_pages": runner.num_pages,
        "positions": runner.context_tokens,
        "head_rows": head_rows,
    }
    if isinstance(runner, ExactRunner):
        from .step_int8 import Int8StepBackbone

        return Int8StepBackbone(config, file, runner.model, runner.pool, **sizes)
    if not isinstance(runner.model, Llama):
        raise UnsupportedDraft("drafts are served beside Llama targets only")
    return TorchStepBackbone(config, file, runner.model, **sizes)


def _target_ids(config: StepConfig, file: DraftFile) -> Tensor | None:
    """[U] int64 by ``d2t`` (target id = own id + d2t[own id]); None: a draft of the whole
    vocabulary. Raises ``WeightsError``."""
    rows, vocab = config.draft_vocab, config.shape.vocab
    if rows is None or (rows == vocab and "d2t" not in file):
        return None
    if "lm_head.weight" not in file:
        raise WeightsError("the draft has a vocabulary of its own, but lacks lm_head.weight")
    ids = torch.arange(rows) + file.raw("d2t", (rows,)).long()
    if ids.min() < 0 or ids.max() >= vocab or len(ids.unique()) != rows:
        raise WeightsError("tensor d2t of the draft does not name different target tokens")
    return ids
