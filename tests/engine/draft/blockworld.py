"""Random targets and random drafts on disk, and an independent slow version of a block draft.

The slow version is written from the formulas (DSpark paper, section 3, and the layout in
``agentspec/engine/draft/block_config.py``), in float64, a row at a time, without any cache.
Legend: T tokens, A tapped layers, E hidden size, V vocabulary, B block size.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, DIM, VOCAB = 4, 64, 96, 4, 2, 32, 96
EPS, THETA = 1e-5, 10000.0
MASK = 90


def shape(kind: str = "llama", layers: int = LAYERS, vocab: int = VOCAB) -> dict[str, Any]:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": HIDDEN,
        "intermediate_size": FFN,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": DIM,
        "vocab_size": vocab,
        "max_position_embeddings": 512,
        "rope_theta": THETA,
        "rms_norm_eps": EPS,
        "tie_word_embeddings": False,
    }


def layer_tensors(prefix: str, generator: torch.Generator, qk_norm: bool) -> dict[str, Tensor]:
    def random(*size: int) -> Tensor:
        return torch.randn(size, generator=generator) / math.sqrt(size[-1])

    found = {
        "self_attn.q_proj": random(HEADS * DIM, HIDDEN),
        "self_attn.k_proj": random(KV_HEADS * DIM, HIDDEN),
        "self_attn.v_proj": random(KV_HEADS * DIM, HIDDEN),
        "self_attn.o_proj": random(HIDDEN, HEADS * DIM),
        "mlp.gate_proj": random(FFN, HIDDEN),
        "mlp.up_proj": random(FFN, HIDDEN),
        "mlp.down_proj": random(HIDDEN, FFN),
        "input_layernorm": 1 + 0.1 * torch.randn(HIDDEN, generator=generator),
        "post_attention_layernorm": 1 + 0.1 * torch.randn(HIDDEN, generator=generator),
    }
    if qk_norm:
        for name in "qk":
            found[f"self_attn.{name}_norm"] = 1 + 0.1 * torch.randn(DIM, generator=generator)
    return {f"{prefix}{name}.weight": tensor for name, tensor in found.items()}


def write_target(path: Path, seed: int = 0, mixing: float = 1.0) -> Path:
    """A random Llama as a safetensors folder. mixing: how much attention has to say."""
    generator = torch.Generator().manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for index in range(LAYERS):
        tensors |= layer_tensors(f"model.layers.{index}.", generator, False)
        tensors[f"model.layers.{index}.self_attn.o_proj.weight"] *= mixing
    tensors["model.embed_tokens.weight"] = torch.randn(VOCAB, HIDDEN, generator=generator)
    tensors["lm_head.weight"] = torch.randn(VOCAB, HIDDEN, generator=generator) * 0.3
    tensors["model.norm.weight"] = 1 + 0.1 * torch.randn(HIDDEN, generator=generator)
    path.mkdir(parents=True, exist_ok=True)
    save_file(tensors, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(shape()))
    return path


def draft_config(**changes: Any) -> dict[str, Any]:
    """DeepSpec's layout: a DSpark of two layers that taps the outputs of layers 0 and 2."""
    kind = changes.pop("kind", "llama")
    raw = shape(kind, layers=2) | {
        "architectures": ["Qwen3DSparkModel" if kind == "qwen3" else "LlamaDSparkModel"],
        "block_size": 5,
        "mask_token_id": MASK,
        "target_layer_ids": [0, 2],
        "markov_rank": 24,
        "markov_head_type": "vanilla",
        "enable_confidence_head": True,
        "confidence_head_with_markov": True,
        "sample_from_anchor": True,
    }
    return raw | changes


def draft_tensors(raw: dict[str, Any], seed: int = 1) -> dict[str, Tensor]:
    """Random weights for a configuration in DeepSpec's layout."""
    generator = torch.Generator().manual_seed(seed)
    taps, rank = len(raw["target_layer_ids"]), raw["markov_rank"]
    vocab = raw["vocab_size"]

    def random(*size: int, scale: float = 1.0) -> Tensor:
        return torch.randn(size, generator=generator) * scale / math.sqrt(size[-1])

    tensors = {
        "fc.weight": random(HIDDEN, taps * HIDDEN),
        "hidden_norm.weight": 1 + 0.1 * torch.randn(HIDDEN, generator=generator),
        "norm.weight": 1 + 0.1 * torch.randn(HIDDEN, generator=generator),
    }
    for index in range(raw["num_hidden_layers"]):
        tensors |= layer_tensors(f"layers.{index}.", generator, raw["model_type"] == "qwen3")
    if rank:
        tensors["markov_head.markov_w1.weight"] = random(vocab, rank, scale=3.0)
        tensors["markov_head.markov_w2.weight"] = random(vocab, rank, scale=3.0)
        gates = {"gated": ("gate_proj", 1, HIDDEN + rank), "rnn": ("joint_proj", 3, 2 * rank)}
        if raw["markov_head_type"] in gates:
            name, parts, inputs = gates[raw["markov_head_type"]]
            inputs += HIDDEN if parts == 3 else 0
            tensors[f"markov_head.{name}.weight"] = random(parts * rank, inputs)
            tensors[f"markov_head.{name}.bias"] = random(parts * rank)
    if raw["enable_confidence_head"]:
        extra = rank if raw["confidence_head_with_markov"] else 0
        tensors["confidence_head.proj.weight"] = random(1, HIDDEN + extra)
        tensors["confidence_head.proj.bias"] = random(1)
    return tensors


def knowing(raw: dict[str, Any], bigrams: Tensor) -> dict[str, Tensor]:
    """A draft that knows by heart what follows which token: bigrams [V, V] logits by token before.

    Its backbone says nothing (hidden states are zero); the Markov head is the whole table.
    """
    assert raw["markov_rank"] == VOCAB and not raw["enable_confidence_head"]
    tensors = draft_tensors(raw)
    tensors["norm.weight"] = torch.zeros(HIDDEN)
    tensors["markov_head.markov_w1.weight"] = torch.eye(VOCAB)
    tensors["markov_head.markov_w2.weight"] = bigrams.T.contiguous()
    return tensors


def write_draft(path: Path, raw: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    save_file({name: t.contiguous() for name, t in tensors.items()}, path / "model.safetensors")
    (path / "config.json").write_text(json.dumps(raw))
    return path


def int8(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The shipped form: every matrix as int8 rows with a scale each."""
    found = {}
    for name, tensor in tensors.items():
        if tensor.ndim < 2 or name.startswith("confidence_head"):
            found[name] = tensor
            continue
        scale = tensor.abs().amax(1) / 127
        found[name] = torch.round(tensor / scale[:, None]).to(torch.int8)
        found[f"{name}_scale"] = scale
    return found


def turned(x: Tensor, position: int) -> Tensor:
    """[heads, D] by rotary embedding of a position, half-rotation layout."""
    half = DIM // 2
    angle = position * THETA ** (-torch.arange(half, dtype=torch.float64) * 2 / DIM)
    a, b = x[:, :half], x[:, half:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=1)


def normed(x: Tensor, weight: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + EPS) * weight.double()


class SlowDraft:
    """A block draft by its formulas. embedding, head: the target's [V, E]."""

    def __init__(self, raw: dict[str, Any], tensors: dict[str, Tensor], embedding, head):
        self.raw = raw
        self.w = {name: tensor.double() for name, tensor in tensors.items()}
        self.embedding, self.head = embedding.double(), head.double()

    def hidden(self, features: Tensor, anchor: int | Sequence[int], position: int) -> Tensor:
        """[B, E] of the block behind context features [T, A*E] of positions 0 .. T - 1. anchor: the
        token at ``position``, or several known ones from there on."""
        raw, w = self.raw, self.w
        context = [normed(w["fc.weight"] @ f.double(), w["hidden_norm.weight"]) for f in features]
        known = [anchor] if isinstance(anchor, int) else list(anchor)
        ids = known + [raw["mask_token_id"]] * (raw["block_size"] - len(known))
        rows = [self.embedding[token] for token in ids]
        for index in range(raw["num_hidden_layers"]):
            rows = self._layer(index, context, rows, position)
        return torch.stack([normed(row, w["norm.weight"]) for row in rows])

    def _layer(self, index: int, context: list[Tensor], rows: list[Tensor], position: int):
        w = {k.removeprefix(f"layers.{index}."): v for k, v in self.w.items()}

        def heads(name: str, x: Tensor, at: int | None) -> Tensor:
            y = (w[f"self_attn.{name}_proj.weight"] @ x).view(-1, DIM)
            if f"self_attn.{name}_norm.weight" in w:
                y = normed(y, w[f"self_attn.{name}_norm.weight"])
            return y if at is None else turned(y, at)

        inner = [normed(row, w["input_layernorm.weight"]) for row in rows]
        keys = [heads("k", c, at) for at, c in enumerate(context)]
        values = [heads("v", c, None) for c in context]
        keys += [heads("k", x, position + i) for i, x in enumerate(inner)]
        values += [heads("v", x, None) for x in inner]
        out = []
        for i, x in enumerate(inner):
            seen = len(context) + (i + 1 if self.raw.get("causal") else len(rows))
            query = heads("q", x, position + i)
            mixed = []
            for h in range(HEADS):
                at = h * KV_HEADS // HEADS
                scores = torch.stack([k[at] @ query[h] for k in keys[:seen]]) / math.sqrt(DIM)
                weight = torch.softmax(scores, 0)
                mixed.append(sum(p * v[at] for p, v in zip(weight, values[:seen], strict=True)))
            y = rows[i] + w["self_attn.o_proj.weight"] @ torch.cat(mixed)
            n = normed(y, w["post_attention_layernorm.weight"])
            gate = w["mlp.gate_proj.weight"] @ n
            up = w["mlp.up_proj.weight"] @ n
            out.append(y + w["mlp.down_proj.weight"] @ (gate * torch.sigmoid(gate) * up))
        return out

    def greedy(
        self, features: Tensor, anchor: int | Sequence[int], position: int
    ) -> tuple[list[int], list[float]]:
        """Tokens behind the anchor, and their confidences, at temperature 0 over all of V."""
        raw, w = self.raw, self.w
        known = [anchor] if isinstance(anchor, int) else list(anchor)
        first = len(known) - 1 + (0 if raw["sample_from_anchor"] else 1)
        rows = self.hidden(features, anchor, position)[first:]
        state = torch.zeros(raw["markov_rank"], dtype=torch.float64)
        tokens, confidences, previous = [], [], known[-1]
        for h in rows:
            logits = self.head @ h
            e = torch.zeros(0, dtype=torch.float64)
            if raw["markov_rank"]:
                e = w["markov_head.markov_w1.weight"][previous]
                bias, state = self._bias(e, h, state)
                logits = logits + bias
            if raw["enable_confidence_head"]:
                weight = w["confidence_head.proj.weight"][0]
                x = torch.cat([h, e])[: len(weight)]
                logit = weight @ x + w["confidence_head.proj.bias"][0]
                confidences.append(float(torch.sigmoid(logit)))
            previous = int(logits.argmax())
            tokens.append(previous)
        return tokens, confidences

    def _bias(self, e: Tensor, h: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        w, kind = self.w, self.raw["markov_head_type"]
        vector = e
        if kind == "gated":
            z = w["markov_head.gate_proj.weight"] @ torch.cat([h, e])
            vector = torch.sigmoid(z + w["markov_head.gate_proj.bias"]) * e
        elif kind == "rnn":
            z = w["markov_head.joint_proj.weight"] @ torch.cat([state, e, h])
            g, c, o = (z + w["markov_head.joint_proj.bias"]).chunk(3)
            state = torch.sigmoid(g) * state + (1 - torch.sigmoid(g)) * torch.tanh(c)
            vector = torch.tanh(o)
        return w["markov_head.markov_w2.weight"] @ vector, state
