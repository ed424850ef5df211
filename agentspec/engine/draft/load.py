"""A draft's folder -> a drafter for the target that is served; what doesn't fit is refused by name.

Read next: ``block_config.py`` (layouts), ``target.py`` (what must fit), ``block.py`` (the drafter).
"""

from __future__ import annotations

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
from .heads import draft_head
from .target import TargetFacts, check_fit

if TYPE_CHECKING:
    from ctypes import CDLL

    from agentspec.engine.runners import AnyRunner


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
    if runner.page_tokens != PAGE:
        raise UnsupportedDraft(f"drafts need engine.page_tokens = {PAGE}")
    options = options or BlockOptions()
    file = DraftFile(path)
    backbone, rows, library = _backbone(config, file, runner, options)
    head = draft_head(config, file, rows, options.candidates)
    return BlockDrafter(name or config.method, config, backbone, Chain(head, library), options)


def _backbone(
    config: BlockConfig, file: DraftFile, runner: AnyRunner, options: BlockOptions
) -> tuple[Backbone, int, CDLL | None]:
    """The backbone, its rows of logits, and the library of the exact runner."""
    rows = min(options.head_rows or config.shape.vocab, config.shape.vocab)
    sizes = {
        "num_pages": runner.num_pages,
        "positions": runner.context_tokens,
        "head_rows": rows,
    }
    if isinstance(runner, ExactRunner):
        from .block_int8 import Int8Backbone

        fast = Int8Backbone(config, file, runner.model, runner.pool, **sizes)
        return fast, fast.head_rows, runner.pool.library
    from .block_torch import TorchBackbone

    model = runner.model
    if not isinstance(model, Llama):
        raise UnsupportedDraft("drafts are served beside Llama targets only")
    plain = TorchBackbone(config, file, model.embedding, model.lm_head, **sizes)
    return plain, plain.head_rows, None
