"""EAGLE-3 and MTP: one layer that feeds its own output back, step by step (training-time test).

Legend: T packed tokens, A anchors, K steps, E hidden size, J K/V heads, D head size, V vocabulary.

Only K and V of the rows before an anchor are computed; that is equal to running every row, because
a step sees true rows at step 0 only, and of the later steps its own (EAGLE-3, arXiv 2503.01840,
section 3.1).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from agentspec.engine.train.spec import DraftSpec

from .base import Batch, DraftNet, Piece, Rows
from .layers import Attention, Layer, Norm, init_weights, rope_angles


class ChainNet(DraftNet):
    """The recursion; a method says how features become input and what is fed back."""

    layers: nn.ModuleList
    norm: Norm

    @property
    def _layer(self) -> Layer:
        layer = self.layers[0]
        assert isinstance(layer, Layer)
        return layer

    def _first(self, features: Tensor) -> Tensor:
        """features [R, N] -> what stands for them in a row, [R, E]."""
        raise NotImplementedError

    def _enter(self, carried: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        """carried, embedded [R, E] -> (residual stream [R, E], attention's input [R, I])."""
        raise NotImplementedError

    def _carry(self, out: Tensor, normed: Tensor) -> Tensor:
        """out [A, E] of the layer, normed: after the last norm -> what the next step takes."""
        raise NotImplementedError

    def forward(self, batch: Batch, embedding: Tensor) -> Rows:
        """Rows of token index i+1: its own embedding beside the features of the token before."""
        target, attention = self.spec.target, self._layer.self_attn
        # Row of token t pairs features of t-1; a sequence's first token has none and is unseen.
        features = self._first(batch.features).roll(1, 0)
        embedded = F.embedding(batch.ids, embedding).to(features.dtype)
        angles = rope_angles(target, batch.positions - 1)
        _, inner = self._enter(features, embedded)
        keys, values = attention.key_value(inner, angles)
        start = batch.positions[batch.anchors]
        pieces = [(piece, self._seen(batch, piece, start)) for piece in batch.pieces()]
        carried, hidden = features[batch.anchors], []
        steps: list[tuple[Tensor, Tensor]] = []
        for step in range(self.spec.block_size):
            tokens = F.embedding(batch.previous[:, step], embedding).to(features.dtype)
            residual, inner = self._enter(carried, tokens)
            turned = rope_angles(target, start - 1 + step)
            if step:
                steps.append(attention.key_value(inner, turned))
            query = attention.query(inner, turned)
            mixed = [
                _mix(attention, query, keys, values, steps, piece, seen) for piece, seen in pieces
            ]
            out = self._layer.finish(residual, attention.o_proj(torch.cat(mixed)))
            normed = self.norm(out)
            hidden.append(normed)
            carried = self._carry(out, normed)
        return Rows(torch.stack(hidden, 1))

    @staticmethod
    def _seen(batch: Batch, piece: Piece, start: Tensor) -> Tensor:
        """Which true rows of its sequence an anchor sees: those up to its own, without the first.

        start [A] int64: the anchors' positions -> [anchors, tokens] bool of the piece.
        """
        positions = batch.positions[piece.tokens][None, :]
        return (positions <= start[piece.anchors][:, None]) & (positions > 0)


def _mix(
    attention: Attention,
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    steps: list[tuple[Tensor, Tensor]],
    piece: Piece,
    seen: Tensor,
) -> Tensor:
    """One sequence's query [A, H, D] over its true rows where ``seen``, and each anchor's steps.

    keys, values [T, J, D]: of all true rows; steps: keys and values [A, J, D] of the steps so far
    -> [anchors of the piece, H*D].
    """
    tokens, anchors = piece
    own = torch.eye(len(seen), dtype=torch.bool, device=query.device).repeat(1, len(steps))
    k = torch.cat((keys[tokens], *(k[anchors] for k, _ in steps)))
    v = torch.cat((values[tokens], *(v[anchors] for _, v in steps)))
    return attention.mix(query[anchors], k, v, torch.cat((seen, own), 1))


class Eagle3Net(ChainNet):
    """Features through ``fc``; token and hidden side by side; the raw output is fed back."""

    def __init__(self, spec: DraftSpec):
        super().__init__(spec)
        target = spec.target
        taps = len(spec.target_layer_ids)
        self.fc = nn.Linear(taps * target.hidden, target.hidden, bias=False)
        self.layers = nn.ModuleList([Layer(target, qk_norm=spec.qk_norm, pair_norm=True)])
        self.norm = Norm(target.hidden, target.norm_eps)
        init_weights(self)

    def _first(self, features: Tensor) -> Tensor:
        return self.fc(features)

    def _enter(self, carried: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        pair = (self._layer.input_layernorm(embedded), self._layer.hidden_norm(carried))
        return carried, torch.cat(pair, -1)

    def _carry(self, out: Tensor, normed: Tensor) -> Tensor:
        return out


class MtpNet(ChainNet):
    """DeepSeek-V3's module (arXiv 2412.19437, section 2.2) applied to its own output again."""

    def __init__(self, spec: DraftSpec):
        super().__init__(spec)
        target = spec.target
        self.enorm = Norm(target.hidden, target.norm_eps)
        self.hnorm = Norm(target.hidden, target.norm_eps)
        self.eh_proj = nn.Linear(2 * target.hidden, target.hidden, bias=False)
        self.layers = nn.ModuleList([Layer(target, qk_norm=spec.qk_norm)])
        self.norm = Norm(target.hidden, target.norm_eps)
        init_weights(self)

    def _first(self, features: Tensor) -> Tensor:
        return features

    def _enter(self, carried: Tensor, embedded: Tensor) -> tuple[Tensor, Tensor]:
        joined = torch.cat((self.enorm(embedded), self.hnorm(carried)), -1)
        z = self.eh_proj(joined)
        return z, self._layer.input_layernorm(z)

    def _carry(self, out: Tensor, normed: Tensor) -> Tensor:
        return normed
