"""Every method again, one row and one head at a time, from the formulas in ``export.py``.

Legend: E hidden size, D head size, V vocabulary, r Markov rank. ``P`` holds a draft's tensors by
name in float64; everything is computed on it by scalars and vectors, so torch gives gradients.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from agentspec.engine.train.spec import DraftSpec

P = dict[str, Tensor]


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x / ((x @ x) / len(x) + eps).sqrt() * weight


def turn(x: Tensor, position: int, theta: float) -> Tensor:
    """One head [D], as complex numbers."""
    half = len(x) // 2
    angle = position * theta ** (-torch.arange(half).double() / half)
    z = torch.complex(x[:half], x[half:]) * torch.polar(torch.ones(half).double(), angle)
    return torch.cat((z.real, z.imag))


class Layer:
    """Keys, values and queries of single rows of draft layer ``number``."""

    def __init__(self, p: P, spec: DraftSpec, number: int):
        self.p, self.spec, self.at = p, spec, f"layers.{number}."

    def weight(self, name: str) -> Tensor:
        return self.p[self.at + name + ".weight"]

    def norm(self, x: Tensor, name: str) -> Tensor:
        return norm(x, self.weight(name), self.spec.target.norm_eps)

    def heads(self, x: Tensor, name: str, position: int | None) -> list[Tensor]:
        t = self.spec.target
        parts = list((self.weight(f"self_attn.{name}_proj") @ x).split(t.head_dim))
        if position is None:
            return parts
        if self.spec.qk_norm:
            parts = [self.norm(part, f"self_attn.{name}_norm") for part in parts]
        return [turn(part, position, t.rope_theta) for part in parts]

    def row(self, x: Tensor, position: int) -> tuple[list[Tensor], list[Tensor]]:
        """Key heads and value heads of one input row."""
        return self.heads(x, "k", position), self.heads(x, "v", None)

    def attend(
        self, x: Tensor, position: int, rows: list[tuple[list[Tensor], list[Tensor]]]
    ) -> Tensor:
        """Output of attention of the row x over ``rows``, projected."""
        t = self.spec.target
        group, out = t.heads // t.kv_heads, []
        for head, query in enumerate(self.heads(x, "q", position)):
            scores = [query @ keys[head // group] / math.sqrt(t.head_dim) for keys, _ in rows]
            chances = torch.stack(scores).softmax(0)
            values = torch.stack([values[head // group] for _, values in rows])
            out.append(chances @ values)
        return self.weight("self_attn.o_proj") @ torch.cat(out)

    def mlp(self, x: Tensor) -> Tensor:
        h = self.norm(x, "post_attention_layernorm")
        gate, up = self.weight("mlp.gate_proj") @ h, self.weight("mlp.up_proj") @ h
        return x + self.weight("mlp.down_proj") @ (gate / (1 + (-gate).exp()) * up)


def block_hidden(
    p: P, spec: DraftSpec, ids: list[int], features: Tensor, anchor: int, emb: Tensor
) -> list[Tensor]:
    """h of every row of the block at ``anchor`` of one sequence."""
    eps = spec.target.norm_eps
    context = [norm(p["fc.weight"] @ f, p["hidden_norm.weight"], eps) for f in features[:anchor]]
    xs = [emb[ids[anchor]]] + [emb[spec.mask_token_id]] * (spec.block_size - 1)
    for number in range(spec.layers):
        layer = Layer(p, spec, number)
        inputs = [layer.norm(x, "input_layernorm") for x in xs]
        known = [layer.row(c, i) for i, c in enumerate(context)]
        own = [layer.row(x, anchor + i) for i, x in enumerate(inputs)]
        new = []
        for i, (x, inner) in enumerate(zip(xs, inputs, strict=True)):
            seen = own[: i + 1] if spec.causal else own
            new.append(layer.mlp(x + layer.attend(inner, anchor + i, known + seen)))
        xs = new
    rows = [norm(x, p["norm.weight"], eps) for x in xs]
    return rows if spec.sample_from_anchor else rows[1:]


def markov_inputs(p: P, spec: DraftSpec, previous: list[int], hidden: list[Tensor]) -> list[Tensor]:
    """What w2 is multiplied with, row by row."""
    state, found = torch.zeros(spec.markov_rank).double(), []
    for token, h in zip(previous, hidden, strict=True):
        e = p["markov_head.markov_w1.weight"][token]
        if spec.markov_head_type == "gated":
            w, b = p["markov_head.gate_proj.weight"], p["markov_head.gate_proj.bias"]
            found.append(1 / (1 + (-(w @ torch.cat((h, e)) + b)).exp()) * e)
        elif spec.markov_head_type == "rnn":
            w, b = p["markov_head.joint_proj.weight"], p["markov_head.joint_proj.bias"]
            g, c, o = (w @ torch.cat((state, e, h)) + b).split(spec.markov_rank)
            gate = 1 / (1 + (-g).exp())
            state = gate * state + (1 - gate) * c.tanh()
            found.append(o.tanh())
        else:
            found.append(e)
    return found


def chain_hidden(
    p: P, spec: DraftSpec, ids: list[int], features: Tensor, anchor: int, emb: Tensor
) -> list[Tensor]:
    """eagle3 or mtp: normed hidden of every step from ``anchor``, later tokens teacher-forced."""
    eps, layer = spec.target.norm_eps, Layer(p, spec, 0)

    def enter(carried: Tensor, token: int) -> tuple[Tensor, Tensor]:
        e = emb[token]
        if spec.method == "eagle3":
            pair = (layer.norm(e, "input_layernorm"), layer.norm(carried, "hidden_norm"))
            return carried, torch.cat(pair)
        pair = (norm(e, p["enorm.weight"], eps), norm(carried, p["hnorm.weight"], eps))
        z = p["eh_proj.weight"] @ torch.cat(pair)
        return z, layer.norm(z, "input_layernorm")

    first = [p["fc.weight"] @ f for f in features] if spec.method == "eagle3" else list(features)
    rows = [layer.row(enter(first[i], ids[i + 1])[1], i) for i in range(anchor)]
    carried, hidden = first[anchor - 1], []
    for step in range(spec.block_size):
        if anchor + step >= len(ids):
            break
        residual, inner = enter(carried, ids[anchor + step])
        if step:
            rows.append(layer.row(inner, anchor - 1 + step))
        out = layer.mlp(residual + layer.attend(inner, anchor - 1 + step, rows))
        hidden.append(norm(out, p["norm.weight"], eps))
        carried = out if spec.method == "eagle3" else hidden[-1]
    return hidden


def row_terms(logits: Tensor, target_logits: Tensor, label: int) -> tuple[Tensor, Tensor, Tensor]:
    """ce, l1 and soft of one row, by their definitions."""
    d, t = logits.softmax(0), target_logits.softmax(0)
    return -d[label].log(), (d - t).abs().sum(), -(t * d.log()).sum()
