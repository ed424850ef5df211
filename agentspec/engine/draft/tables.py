"""The embeddings and lm_head that a draft uses: its own where its file has them, else the target's.

Legend: V vocabulary, U rows of draft logits, E hidden size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from agentspec.engine.model.int8_llama import PackedLinear

if TYPE_CHECKING:
    from .block_config import BlockConfig
    from .draft_file import DraftFile
    from .step_config import StepConfig

_EMBEDDING, _HEAD = "embed_tokens.weight", "lm_head.weight"


def packed_tables(
    config: BlockConfig | StepConfig,
    file: DraftFile,
    ids: npt.NDArray,
    embedding: npt.NDArray,
    head: PackedLinear,
) -> tuple[npt.NDArray, PackedLinear]:
    """embedding [V, E] and head (V rows): the target's; ids [U]: the token of each row of logits.

    Returns the embeddings, and a head of U rows. Raises ``WeightsError``.
    """
    vocab, hidden = config.shape.vocab, config.shape.hidden
    if _EMBEDDING in file:
        embedding = file.dense(_EMBEDDING, vocab, hidden)
    if _HEAD in file:
        head = PackedLinear(file.matrix(_HEAD, config.draft_vocab or vocab, hidden))
    if head.outputs == len(ids):
        return embedding, head
    first = (ids == np.arange(len(ids))).all()
    return embedding, head.first(len(ids)) if first else head.rows(ids)


def dense_tables(
    config: BlockConfig | StepConfig,
    file: DraftFile,
    ids: npt.NDArray,
    embedding: Tensor,
    head: Tensor,
) -> tuple[Tensor, Tensor]:
    """``packed_tables`` in floats, on the embedding's device: [V, E] and [U, E]."""
    vocab, hidden = config.shape.vocab, config.shape.hidden
    if _EMBEDDING in file:
        embedding = torch.from_numpy(file.dense(_EMBEDDING, vocab, hidden)).to(embedding.device)
    if _HEAD in file:
        own = file.dense(_HEAD, config.draft_vocab or vocab, hidden)
        head = torch.from_numpy(own).to(embedding.device)
    if len(head) == len(ids):
        return embedding, head
    return embedding, head[torch.from_numpy(ids).long().to(head.device)]
