"""DSpark, DFlash and JetSpec: one parallel block behind the target's own features.

Legend: T packed tokens, A anchors, B block size, K proposed tokens, E hidden size, V vocabulary.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentspec.engine.train.spec import DraftSpec

from .base import Batch, DraftNet, Piece, Rows, eye_of_blocks
from .layers import Layer, Norm, init_weights, rope_angles
from .markov import ConfidenceHead, MarkovHead


class BlockNet(DraftNet):
    """The backbone with its heads; which there are, the spec says."""

    def __init__(self, spec: DraftSpec):
        super().__init__(spec)
        target = spec.target
        taps = len(spec.target_layer_ids)
        self.fc = nn.Linear(taps * target.hidden, target.hidden, bias=False)
        self.hidden_norm = Norm(target.hidden, target.norm_eps)
        self.layers = nn.ModuleList(Layer(target, qk_norm=spec.qk_norm) for _ in range(spec.layers))
        self.norm = Norm(target.hidden, target.norm_eps)
        self.markov_head = MarkovHead(spec) if spec.markov_rank else None
        self.confidence_head = ConfidenceHead(spec) if spec.confidence_head else None
        init_weights(self)

    @property
    def w2(self) -> Tensor | None:
        return None if self.markov_head is None else self.markov_head.markov_w2.weight

    def forward(self, batch: Batch, embedding: Tensor) -> Rows:
        hidden = self.backbone(batch, embedding)
        if not self.spec.sample_from_anchor:
            hidden = hidden[:, 1:]
        embedded = markov = None
        if self.markov_head is not None:
            embedded = self.markov_head.markov_w1(batch.previous)
            markov = self.markov_head.inputs(embedded, hidden)
        confidence = None
        if self.confidence_head is not None:
            confidence = self.confidence_head(hidden, embedded)
        return Rows(hidden, markov, confidence)

    def backbone(self, batch: Batch, embedding: Tensor) -> Tensor:
        """-> [A, B, E] after the last norm, row 0 the anchor's."""
        spec, size = self.spec, self.spec.block_size
        context = self.hidden_norm(self.fc(batch.features))
        known = rope_angles(spec.target, batch.positions)
        step = torch.arange(size, device=batch.ids.device)
        start = batch.positions[batch.anchors]
        angles = rope_angles(spec.target, (start[:, None] + step).flatten())
        tokens = torch.full((len(start), size), spec.mask_token_id, device=batch.ids.device)
        tokens[:, 0] = batch.ids[batch.anchors]
        x = F.embedding(tokens.flatten(), embedding).to(context.dtype)
        pieces = [self._piece(batch, piece, start) for piece in batch.pieces()]
        for layer in self.layers:
            assert isinstance(layer, Layer)
            attention, inner = layer.self_attn, layer.input_layernorm(x)
            k, v = attention.key_value(context, known)
            own_k, own_v = attention.key_value(inner, angles)
            query = attention.query(inner, angles)
            mixed = [
                attention.mix(
                    query[rows],
                    torch.cat((k[tokens], own_k[rows])),
                    torch.cat((v[tokens], own_v[rows])),
                    seen,
                )
                for rows, tokens, seen in pieces
            ]
            x = layer.finish(x, attention.o_proj(torch.cat(mixed)))
        return self.norm(x).view(len(start), size, -1)

    def _piece(self, batch: Batch, piece: Piece, start: Tensor) -> tuple[slice, slice, Tensor]:
        """Of one sequence: its block rows, its tokens, and which of both each row sees.

        start [A] int64: the anchors' positions. A row sees the tokens before its anchor, and its
        own block.
        """
        size, anchors = self.spec.block_size, piece.anchors
        context = batch.positions[piece.tokens][None, :] < start[anchors][:, None]
        blocks = eye_of_blocks(len(context), size, self.spec.causal, context.device)
        seen = torch.cat((context.repeat_interleave(size, 0), blocks), 1)
        return slice(anchors.start * size, anchors.stop * size), piece.tokens, seen
