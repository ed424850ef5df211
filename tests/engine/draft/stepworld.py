"""Random EAGLE-3 and MTP drafts on disk in every layout, and an independent slow version.

The slow version is written from the formulas (``agentspec/engine/train/export.py``; EAGLE-3, arXiv
2503.01840), in float64, a row at a time, without any cache.
Legend: T tokens, A tapped layers, E hidden size, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from tests.engine.draft import blockworld as world
from tests.engine.draft.blockworld import DIM, HEADS, HIDDEN, KV_HEADS, LAYERS, VOCAB

EAGLE_TAPS, MTP_TAPS = [0, 2], [LAYERS - 1]


def config(method: str, **changes: Any) -> dict[str, Any]:
    """DeepSpec's layout, as the trainer of this project writes it."""
    kind = changes.pop("kind", "llama")
    name = {"eagle3": "Eagle3Model", "mtp": "MtpModel"}[method]
    raw = world.shape(kind, layers=1) | {
        "architectures": [("Qwen3" if kind == "qwen3" else "Llama") + name],
        "target_layer_ids": EAGLE_TAPS if method == "eagle3" else MTP_TAPS,
        "block_size": 5,
        "agentspec": {"method": method},
    }
    return raw | changes


def tensors(method: str, kind: str = "llama", seed: int = 2) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def random(*size: int) -> Tensor:
        return torch.randn(size, generator=generator) / math.sqrt(size[-1])

    def norm() -> Tensor:
        return 1 + 0.1 * torch.randn(HIDDEN, generator=generator)

    found = world.layer_tensors("layers.0.", generator, kind == "qwen3")
    found["norm.weight"] = norm()
    if method == "eagle3":
        found["fc.weight"] = random(HIDDEN, len(EAGLE_TAPS) * HIDDEN)
        found["layers.0.hidden_norm.weight"] = norm()
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            found[f"layers.0.self_attn.{name}_proj.weight"] = random(heads * DIM, 2 * HIDDEN)
    else:
        found["eh_proj.weight"] = random(HIDDEN, 2 * HIDDEN)
        found["enorm.weight"], found["hnorm.weight"] = norm(), norm()
    return found


def own_vocabulary(rows: int, seed: int = 3) -> dict[str, Tensor]:
    """A head over ``rows`` tokens of its own: lm_head, d2t, t2d."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randperm(VOCAB, generator=generator)[:rows].sort().values
    known = torch.zeros(VOCAB, dtype=torch.bool)
    known[ids] = True
    head = torch.randn(rows, HIDDEN, generator=generator) * 0.3
    return {"lm_head.weight": head, "d2t": ids - torch.arange(rows), "t2d": known}


class SlowSteps:
    """The rows by their formulas. embedding, head [V, E]: the target's; norm [E]: its last one."""

    def __init__(self, raw, weights: dict[str, Tensor], embedding, head, norm):
        self.eagle = raw["agentspec"]["method"] == "eagle3"
        self.norm_first = raw.get("norm_before_residual", False)
        self.norm_output = raw.get("norm_output", False) or not self.eagle
        self.w = {
            name.removeprefix("layers.0."): tensor.double()
            for name, tensor in weights.items()
            if name not in ("d2t", "t2d")
        }
        self.ids = torch.arange(VOCAB)
        self.embedding, self.head, self.norm = embedding.double(), head.double(), norm.double()
        if "d2t" in weights:
            self.ids = torch.arange(len(weights["d2t"])) + weights["d2t"]
            self.head = self.w["lm_head.weight"]
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []

    def first(self, feature: Tensor) -> Tensor:
        if self.eagle:
            return self.w["fc.weight"] @ feature.double()
        return world.normed(feature.double(), self.norm)

    def row(self, carried: Tensor, token: int, position: int) -> tuple[Tensor, Tensor]:
        """Appends its K and V -> logits [V] (-inf where the draft has none), what it carries."""
        w = self.w
        embedded = self.embedding[token]
        if self.eagle:
            normed = world.normed(carried, w["hidden_norm.weight"])
            x = torch.cat([world.normed(embedded, w["input_layernorm.weight"]), normed])
            residual = normed if self.norm_first else carried
        else:
            halves = [
                world.normed(embedded, w["enorm.weight"]),
                world.normed(carried, w["hnorm.weight"]),
            ]
            residual = w["eh_proj.weight"] @ torch.cat(halves)
            x = world.normed(residual, w["input_layernorm.weight"])
        self.keys.append(self._heads("k", x, position))
        self.values.append((w["self_attn.v_proj.weight"] @ x).view(-1, DIM))
        query, mixed = self._heads("q", x, position), []
        for h in range(HEADS):
            at = h * KV_HEADS // HEADS
            scores = torch.stack([k[at] @ query[h] for k in self.keys]) / math.sqrt(DIM)
            pairs = zip(torch.softmax(scores, 0), self.values, strict=True)
            mixed.append(torch.stack([p * v[at] for p, v in pairs]).sum(0))
        y = residual + w["self_attn.o_proj.weight"] @ torch.cat(mixed)
        n = world.normed(y, w["post_attention_layernorm.weight"])
        gate, up = w["mlp.gate_proj.weight"] @ n, w["mlp.up_proj.weight"] @ n
        out = y + w["mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up)
        last = world.normed(out, w["norm.weight"])
        logits = torch.full((VOCAB,), -torch.inf, dtype=torch.float64)
        logits[self.ids] = self.head @ last
        return logits, last if self.norm_output else out

    def _heads(self, name: str, x: Tensor, position: int) -> Tensor:
        y = (self.w[f"self_attn.{name}_proj.weight"] @ x).view(-1, DIM)
        if f"self_attn.{name}_norm.weight" in self.w:
            y = world.normed(y, self.w[f"self_attn.{name}_norm.weight"])
        return world.turned(y, position)

    def greedy(self, features: Tensor, tokens: list[int], count: int) -> tuple[list[int], Tensor]:
        """``count`` tokens behind ``tokens``, whose features [T - 1 or fewer, N] are known, and the
        logits [count, V] that chose them. Tokens without features are stepped over."""
        self.keys, self.values = [], []
        logits = carried = torch.zeros(0)
        for i, feature in enumerate(features):
            logits, carried = self.row(self.first(feature), tokens[i + 1], i)
        drafted: list[int] = []
        rows: list[Tensor] = []
        at = len(features)
        while len(drafted) < count:
            if at + 1 < len(tokens):
                token = tokens[at + 1]
            else:
                rows.append(logits)
                token = int(logits.argmax())
                drafted.append(token)
            logits, carried = self.row(carried, token, at)
            at += 1
        return drafted, torch.stack(rows)
