"""The Markov and confidence heads of DSpark (research: DSpark paper, eq. 5-8), teacher-forced.

Legend: A anchors, K proposed tokens, E hidden size, r rank, V vocabulary.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from agentspec.engine.train.spec import DraftSpec


class MarkovHead(nn.Module):
    """Logits' bias = w2 times what ``inputs`` returns."""

    def __init__(self, spec: DraftSpec):
        super().__init__()
        rank, hidden = spec.markov_rank, spec.target.hidden
        self.kind = spec.markov_head_type
        self.markov_w1 = nn.Embedding(spec.target.vocab, rank)
        self.markov_w2 = nn.Linear(rank, spec.logit_rows, bias=False)
        if self.kind == "gated":
            self.gate_proj = nn.Linear(hidden + rank, rank)
        elif self.kind == "rnn":
            self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank)

    def inputs(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        """embedded [A, K, r]: w1 of the tokens before, hidden [A, K, E] -> w2's input [A, K, r]."""
        if self.kind == "gated":
            return self.gate_proj(torch.cat((hidden, embedded), -1)).sigmoid() * embedded
        if self.kind == "rnn":
            return self._recur(embedded, hidden)
        return embedded

    def _recur(self, embedded: Tensor, hidden: Tensor) -> Tensor:
        state, outputs = torch.zeros_like(embedded[:, 0]), []
        for k in range(embedded.shape[1]):
            joint = self.joint_proj(torch.cat((state, embedded[:, k], hidden[:, k]), -1))
            gate, new, out = joint.chunk(3, -1)
            keep = gate.sigmoid()
            state = keep * state + (1 - keep) * new.tanh()
            outputs.append(out.tanh())
        return torch.stack(outputs, 1)


class ConfidenceHead(nn.Module):
    """Logit of P(token k accepted | those before accepted), from what is known before it."""

    def __init__(self, spec: DraftSpec):
        super().__init__()
        self.with_markov = spec.confidence_with_markov and spec.markov_rank > 0
        width = spec.target.hidden + (spec.markov_rank if self.with_markov else 0)
        self.proj = nn.Linear(width, 1)

    def forward(self, hidden: Tensor, embedded: Tensor | None) -> Tensor:
        """hidden [A, K, E], embedded [A, K, r] -> [A, K], computed in the weights' own dtype."""
        parts = (hidden, embedded) if self.with_markov and embedded is not None else (hidden,)
        joined = torch.cat([part.to(self.proj.weight.dtype) for part in parts], -1)
        with torch.autocast(joined.device.type, enabled=False):
            return self.proj(joined)[..., 0]
