"""A draft's folder -> a drafter for the target that is served; what doesn't fit is refused by name.

Read next: ``block_config.py`` (layouts), ``target.py`` (what must fit), ``block.py`` (the drafter),
``load_steps.py`` (EAGLE-3 and MTP).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentspec_kernels.draft_block import Chain

from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.llama import Llama

from .backbone import PAGE, Backbone
from .block import BlockDrafter, BlockOptions
from .block_config import BlockConfig, block_config
from .draft_file import DraftFile, read_config
from .errors import UnsupportedDraft
from .heads import draft_head, draft_ids
from .load_steps import load_steps
from .step_config import is_step_draft
from .target import TargetFacts, check_fit

if TYPE_CHECKING:
    from ctypes import CDLL

    import numpy.typing as npt

    from agentspec.engine.runners import AnyRunner

    from .steps import StepDrafter


def load_draft(
    path: Path,
    runner: AnyRunner,
    target: TargetFacts,
    *,
    name: str | None = None,
    options: BlockOptions | None = None,
) -> BlockDrafter | StepDrafter:
    """A trained draft of any method. name: None: its method.

    Raises ``DraftMismatch``, ``UnsupportedDraft``, ``DraftError`` or ``WeightsError``.
    """
    if is_step_draft(read_config(path)):
        rows = None if options is None else options.head_rows
        return load_steps(path, runner, target, name=name, head_rows=rows)
    return load_block(path, runner, target, name=name, options=options)


def load_block(
    path: Path,
    runner: AnyRunner,
    target: TargetFacts,
    *,
    name: str | None = None,
    options: BlockOptions | None = None,
) -> BlockDrafter:
    """A DSpark, DFlash or JetSpec draft. name: None: its method.

    Raises ``DraftMismatch``, ``UnsupportedDraft``, ``DraftError`` or ``WeightsError``.
    """
    config = block_config(read_config(path))
    check_fit(config, target)
    config = replace(config, shape=config.shape.stretched(target.stretch))
    if runner.page_tokens != PAGE:
        raise UnsupportedDraft(f"drafts need engine.page_tokens = {PAGE}")
    options = options or BlockOptions()
    file = DraftFile(path)
    ids = draft_ids(config, file, options.head_rows)
    backbone, library = _backbone(config, file, runner, ids, options.bits)
    head = draft_head(config, file, ids, options.candidates)
    return BlockDrafter(name or config.method, config, backbone, Chain(head, library), options)


def _backbone(
    config: BlockConfig, file: DraftFile, runner: AnyRunner, ids: npt.NDArray, bits: int
) -> tuple[Backbone, CDLL | None]:
    """The backbone, and the library of the exact runner. ids: [U] tokens of the rows of logits."""
    sizes = {"num_pages": runner.num_pages, "positions": runner.context_tokens}
    if isinstance(runner, ExactRunner):
        from .block_int8 import Int8Backbone

        fast = Int8Backbone(config, file, runner.model, runner.pool, ids, **sizes, bits=bits)
        return fast, runner.pool.library
    from .block_torch import TorchBackbone

    model = runner.model
    if not isinstance(model, Llama):
        raise UnsupportedDraft("drafts are served beside Llama targets only")
    return TorchBackbone(config, file, model.embedding, model.lm_head, ids, **sizes), None
