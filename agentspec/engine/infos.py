"""Log-probabilities of emitted tokens under the model's own distribution.

Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .request import TokenInfo

if TYPE_CHECKING:
    from torch import Tensor

    from .slot import Slot


def tell_infos(slot: Slot, logits: Tensor) -> None:
    """Hand the sequence's emission every info that this pass's ``logits`` [R, V] float can give.

    Only rows whose inputs are committed count: those before ``sequence.computed``. Logits are raw:
    before bias, penalties, mask and temperature. Nothing happens where no infos are wanted.
    """
    sequence = slot.sequence
    top = sequence.request.logprobs
    if top is None:
        return
    index = {offset: slot.first_logit + i for i, offset in enumerate(slot.logit_rows)}
    for position, offset in enumerate(slot.offsets(len(sequence.tokens)), start=slot.start + 1):
        if offset not in index:
            continue
        waiting = sequence.emission.waiting_from
        if waiting is None or position > sequence.computed:
            return
        if position >= waiting:
            info = token_info(logits[index[offset]], sequence.tokens[position], top)
            sequence.emission.inform(position, info)


def token_info(row: Tensor, token: int, top: int) -> TokenInfo:
    """``token`` and the ``top`` most probable ones under the raw logits ``row`` [V] float."""
    logprobs = torch.log_softmax(row.double(), dim=0)
    best = logprobs.topk(min(top, logprobs.numel()))
    pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return TokenInfo(token=token, logprob=float(logprobs[token]), top=tuple(pairs))
