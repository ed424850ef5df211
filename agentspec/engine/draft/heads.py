"""The Markov and confidence heads of a draft's file, as the chain takes them.

Legend: V vocabulary, U rows of draft logits, E hidden size, r Markov rank.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from agentspec_kernels.draft_block import DraftHead
from agentspec_kernels.draft_block.head import LANES

from agentspec.engine.model.errors import WeightsError

if TYPE_CHECKING:
    from .block_config import BlockConfig
    from .draft_file import DraftFile
    from .step_config import StepConfig

_PARTS = {"gated": "gate_proj", "rnn": "joint_proj"}


def draft_ids(
    config: BlockConfig | StepConfig, file: DraftFile, head_rows: int | None
) -> npt.NDArray:
    """[U] int32: the token of each row of draft logits.

    A draft's own shortlist is its tensor d2t, [U] offsets (token = row + d2t[row]); else it is the
    first ``head_rows`` tokens (None: all). Raises ``WeightsError``.
    """
    vocab = config.shape.vocab
    if config.draft_vocab is None or config.draft_vocab == vocab:
        return np.arange(min(head_rows or vocab, vocab), dtype=np.int32)
    if "d2t" not in file:
        raise WeightsError("the draft has a vocabulary of its own, but lacks the tensor d2t")
    ids = np.arange(config.draft_vocab) + file.raw("d2t", (config.draft_vocab,)).numpy()
    if ids.min() < 0 or ids.max() >= vocab or len(np.unique(ids)) != len(ids):
        raise WeightsError("tensor d2t of the draft does not name different target tokens")
    return ids.astype(np.int32)


def draft_head(
    config: BlockConfig, file: DraftFile, ids: npt.NDArray, candidates: int
) -> DraftHead:
    """ids: [U], see ``draft_ids``. The rank is padded to 16 with zeros.

    Raises ``WeightsError`` naming a tensor.
    """
    shape, rank = config.shape, config.markov_rank
    fields: dict[str, Any] = {}
    padded = -(-rank // LANES) * LANES
    if rank:
        w1, fields["w1_scale"] = file.table("markov_head.markov_w1.weight", shape.vocab, rank)
        w2, w2_scale = _w2(config, file, ids)
        fields["w1"], fields["w2"] = _wide(w1, padded), _wide(w2, padded)
        fields["w2_scale"] = np.ascontiguousarray(w2_scale)
        if config.markov_head != "vanilla":
            fields["gate"], fields["gate_bias"] = _gate(config, file, padded)
    if config.confidence:
        fields["confidence"] = _confidence(config, file, padded)
    if (ids != np.arange(len(ids))).any():
        fields["target_id"] = ids
    rows = len(ids)
    return DraftHead(
        vocab=shape.vocab,
        rows=rows,
        hidden=shape.hidden,
        rank=padded,
        markov=config.markov_head if rank else "none",
        candidates=min(candidates, rows),
        **fields,
    )


def _w2(config: BlockConfig, file: DraftFile, ids: npt.NDArray) -> tuple[npt.NDArray, npt.NDArray]:
    """[U, r] int8 and [U]: stored for the draft's rows, or for every token."""
    name, rank = "markov_head.markov_w2.weight", config.markov_rank
    if config.draft_vocab is not None and file.shape(name)[0] == config.draft_vocab:
        return file.table(name, config.draft_vocab, rank)
    table, scale = file.table(name, config.shape.vocab, rank)
    return table[ids], scale[ids]


def _wide(table: npt.NDArray, columns: int) -> npt.NDArray:
    """[N, r] with zeros behind, up to so many columns."""
    return np.ascontiguousarray(np.pad(table, ((0, 0), (0, columns - table.shape[1]))))


def _gate(config: BlockConfig, file: DraftFile, padded: int) -> tuple[npt.NDArray, npt.NDArray]:
    """The gate's weight and bias with every part that has size r padded."""
    rank, hidden = config.markov_rank, config.shape.hidden
    parts, inputs = (1, [hidden, rank]) if config.markov_head == "gated" else (3, [rank] * 2)
    if parts == 3:
        inputs = [*inputs, hidden]
    name = f"markov_head.{_PARTS[config.markov_head]}"
    weight = file.dense(f"{name}.weight", parts * rank, sum(inputs))
    bias = file.dense(f"{name}.bias", parts * rank)
    columns = np.split(weight, np.cumsum(inputs)[:-1], axis=1)
    wide = [_wide(c, padded if n == rank else n) for c, n in zip(columns, inputs, strict=True)]
    stacked = np.concatenate(wide, axis=1).reshape(parts, rank, -1)
    more = padded - rank
    return (
        np.ascontiguousarray(np.pad(stacked, ((0, 0), (0, more), (0, 0)))).reshape(
            parts * padded, -1
        ),
        np.ascontiguousarray(np.pad(bias.reshape(parts, rank), ((0, 0), (0, more)))).reshape(-1),
    )


def _confidence(config: BlockConfig, file: DraftFile, padded: int) -> npt.NDArray:
    """[E + r + 1]: weights of the hidden state and of the token before (zeros if unused), bias."""
    hidden, rank = config.shape.hidden, config.markov_rank
    used = rank if config.confidence_with_markov else 0
    weight = file.dense("confidence_head.proj.weight", 1, hidden + used)[0]
    bias = np.zeros(1, np.float32)
    if "confidence_head.proj.bias" in file:
        bias = file.dense("confidence_head.proj.bias", 1)
    token = np.zeros(padded, np.float32)
    token[:used] = weight[hidden:]
    return np.concatenate([weight[:hidden], token, bias]).astype(np.float32)
