"""Grammar masks of a sample's answer, and acceptance under them.

Legend: R rows, V vocabulary, W = ceil(V / 32) mask words, E hidden size, r Markov rank, U target
rows, C rows of a chunk.

Under a mask both distributions are renormalised over the tokens that it allows; that overlap is
what a draft drawn under the mask is accepted with.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from agentspec.engine.build import constraints
from agentspec.toolcall.choice import output_spec
from agentspec.toolcall.detect import format_for
from agentspec.wire.chat import decode_request, encode
from agentspec.wire.errors import AgentspecError

from .losses import Head
from .samples import Sample
from .target import Target


class SampleMasks:
    """Replays the grammar of each constrained sample over its answer."""

    def __init__(self, target: Target, samples: Sequence[Sample]):
        self._target = target
        self._samples = {sample.id: sample for sample in samples if sample.body is not None}
        tokenizer = target.tokenizer
        names = (target.name, target.path.name)
        self._format = format_for(
            target.settings.tool_format, *names, template=tokenizer.template_source
        )
        self._compiler = constraints(tokenizer, target.settings)

    def __call__(self, id: str) -> Tensor | None:
        """Words [answer tokens, W] int32: row i allows what may stand at token i of the answer.

        None where nothing constrains it, or where the answer leaves its grammar (it was written by
        a server with another one).
        """
        sample = self._samples.get(id)
        if sample is None or sample.body is None:
            return None
        try:
            request = decode_request(encode({**sample.body, "model": self._target.name}))
            spec = output_spec(request, self._format)
            if spec is None:
                return None
            session = self._compiler.compile(spec).session()
        except AgentspecError:
            return None
        answer = sample.ids[sample.prompt_tokens :]
        eos = self._target.tokenizer.eos_ids
        draft = answer[:-1] if answer[-1] in eos else answer
        rows = torch.full((len(draft) + 1, -(-self._target.tokenizer.vocab_size // 32)), -1)
        rows = rows.to(torch.int32)
        legal = session.masks(draft, rows)
        return rows[: len(answer)] if legal == len(draft) else None


def masked_overlap(
    head: Head,
    hidden: Tensor,
    markov: Tensor | None,
    w2: Tensor | None,
    targets: Tensor,
    target_rows: Tensor,
    masks: Sequence[Tensor | None],
) -> tuple[Tensor, Tensor]:
    """hidden [R, E], markov [R, r], w2 [V, r], targets [U, E], target_rows [R], masks: R of [W].

    Returns masked [R] bool (a mask leaves more than one token) and the overlap [R] under it: 1
    where it leaves one, 0 without a mask.
    """
    weight, rows = head.weight, len(hidden)
    wide = torch.promote_types(weight.dtype, torch.float32)
    masked = torch.zeros(rows, dtype=torch.bool)
    overlap = torch.zeros(rows, dtype=wide)
    chosen = [i for i, mask in enumerate(masks) if mask is not None]
    for start in range(0, len(chosen), head.chunk):
        part = chosen[start : start + head.chunk]
        words = torch.stack([m for i in part if (m := masks[i]) is not None])
        allowed = _allowed(words, head).to(hidden.device)
        logits = hidden[part].to(weight.dtype) @ weight.T
        if markov is not None and w2 is not None:
            logits = logits + markov[part].to(weight.dtype) @ w2.to(weight.dtype).T
        draft = _under(
            logits.to(wide), allowed if head.short is None else allowed[:, head.short.ids]
        )
        whole = weight if head.short is None else head.short.head
        target = _under((targets[target_rows[part]].to(whole.dtype) @ whole.T).to(wide), allowed)
        if head.short is not None:
            target = target[:, head.short.ids]
        overlap[part] = torch.minimum(draft, target).sum(-1).cpu()
        masked[part] = (allowed.sum(-1) > 1).cpu()
    return masked, overlap


def _allowed(words: Tensor, head: Head) -> Tensor:
    whole = head.weight if head.short is None else head.short.head
    return unpacked(words, len(whole))


def _under(logits: Tensor, allowed: Tensor) -> Tensor:
    """Chances [C, V] under the mask; zeros where it allows nothing that has a logit."""
    return logits.masked_fill(~allowed, -torch.inf).softmax(-1).nan_to_num(0)


def unpacked(words: Tensor, vocab: int) -> Tensor:
    """words [C, W] int32 -> allowed [C, V] bool."""
    bits = words[:, :, None] >> torch.arange(32, dtype=torch.int32)
    return (bits & 1).bool().flatten(1)[:, :vocab]
