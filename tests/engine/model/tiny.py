"""A tiny random Llama: its weights, its files, and a dense forward pass that knows no pages.

Legend: C positions, E hidden size, H heads, J K/V heads, D head size, V vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor


@dataclass(frozen=True)
class Shape:
    """A Llama whose every size is a different number, and a multiple of 32 where Q4_1 needs it.

    slower: the dense pass divides positions by it; no file says so.
    """

    layers: int = 3
    hidden: int = 64
    ffn: int = 96
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 16
    vocab: int = 80
    context: int = 96
    theta: float = 5000.0
    slower: float = 1.0
    eps: float = 1e-5
    tied: bool = True


def random_weights(shape: Shape, seed: int = 0) -> dict[str, Tensor]:
    """Weights by Hugging Face name, float32, so large that attention is far from uniform."""
    generator = torch.Generator().manual_seed(seed)

    def rand(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator) * (1.5 / size[-1] ** 0.5)

    query, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    weights = {
        "model.embed_tokens.weight": rand(shape.vocab, shape.hidden) * 4,
        "model.norm.weight": 1 + rand(shape.hidden),
    }
    if not shape.tied:
        weights["lm_head.weight"] = rand(shape.vocab, shape.hidden)
    for i in range(shape.layers):
        layer = {
            "input_layernorm": 1 + rand(shape.hidden),
            "self_attn.q_proj": rand(query, shape.hidden) * 2,
            "self_attn.k_proj": rand(kv, shape.hidden) * 2,
            "self_attn.v_proj": rand(kv, shape.hidden),
            "self_attn.o_proj": rand(shape.hidden, query),
            "post_attention_layernorm": 1 + rand(shape.hidden),
            "mlp.gate_proj": rand(shape.ffn, shape.hidden),
            "mlp.up_proj": rand(shape.ffn, shape.hidden),
            "mlp.down_proj": rand(shape.hidden, shape.ffn),
        }
        weights |= {f"model.layers.{i}.{name}.weight": w for name, w in layer.items()}
    return weights


def dense(
    shape: Shape, weights: dict[str, Tensor], tokens: list[int]
) -> tuple[Tensor, list[Tensor]]:
    """Logits [C, V] and each layer's output [C, E], float64, one token and head at a time."""
    w = {name: weight.double() for name, weight in weights.items()}
    half, group = shape.head_dim // 2, shape.heads // shape.kv_heads
    speeds = shape.theta ** (-torch.arange(half).double() / half)

    def norm(x: Tensor, weight: Tensor) -> Tensor:
        rows = [row / ((row @ row) / len(row) + shape.eps).sqrt() for row in x]
        return torch.stack(rows) * weight

    def heads(x: Tensor, weight: Tensor, count: int, turn: bool) -> list[list[Tensor]]:
        rows = []
        for position, row in enumerate(x):
            parts = (weight @ row).split(shape.head_dim)
            assert len(parts) == count
            if turn:
                by = torch.polar(torch.ones(half).double(), position / shape.slower * speeds)
                turned = [torch.complex(p[:half], p[half:]) * by for p in parts]
                parts = [torch.cat((z.real, z.imag)) for z in turned]
            rows.append(parts)
        return rows

    x, outputs = w["model.embed_tokens.weight"][tokens], []
    for i in range(shape.layers):
        p = f"model.layers.{i}."
        h = norm(x, w[p + "input_layernorm.weight"])
        q = heads(h, w[p + "self_attn.q_proj.weight"], shape.heads, True)
        k = heads(h, w[p + "self_attn.k_proj.weight"], shape.kv_heads, True)
        v = heads(h, w[p + "self_attn.v_proj.weight"], shape.kv_heads, False)
        mixed = []
        for at in range(len(tokens)):
            row = []
            for head in range(shape.heads):
                keys = torch.stack([k[t][head // group] for t in range(at + 1)])
                values = torch.stack([v[t][head // group] for t in range(at + 1)])
                row.append((keys @ q[at][head] / shape.head_dim**0.5).softmax(0) @ values)
            mixed.append(torch.cat(row))
        x = x + torch.stack(mixed) @ w[p + "self_attn.o_proj.weight"].T
        h = norm(x, w[p + "post_attention_layernorm.weight"])
        gate, up = h @ w[p + "mlp.gate_proj.weight"].T, h @ w[p + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + (-gate).exp()) * up) @ w[p + "mlp.down_proj.weight"].T
        outputs.append(x)
    head = w.get("lm_head.weight", w["model.embed_tokens.weight"])
    return norm(x, w["model.norm.weight"]) @ head.T, outputs


def hf_config(shape: Shape) -> dict:
    return {
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rope_theta": shape.theta,
        "rms_norm_eps": shape.eps,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
    }


def write_folder(
    path: Path, shape: Shape, weights: dict[str, Tensor], shards: int = 1, **config: object
) -> Path:
    """A safetensors folder; ``config`` overrides entries of config.json."""
    path.mkdir(exist_ok=True)
    (path / "config.json").write_text(json.dumps(hf_config(shape) | config))
    if shards == 1:
        save_file(weights, path / "model.safetensors")
        return path
    where = {name: f"model-{i % shards + 1:05}.safetensors" for i, name in enumerate(weights)}
    for file in set(where.values()):
        save_file({n: w for n, w in weights.items() if where[n] == file}, path / file)
    index = {"metadata": {}, "weight_map": where}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    return path


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    stem = name.removesuffix(".weight")
    if stem in GGUF_NAMES:
        return GGUF_NAMES[stem] + ".weight"
    _, _, layer, part = stem.split(".", 3)
    return f"blk.{layer}.{GGUF_NAMES[part]}.weight"


def converted(weight: np.ndarray, heads: int) -> np.ndarray:
    """What llama.cpp's converter does to q and k rows of a Llama (convert_hf_to_gguf.py)."""
    rows = weight.shape[0]
    return (
        weight.reshape(heads, 2, rows // heads // 2, *weight.shape[1:])
        .swapaxes(1, 2)
        .reshape(weight.shape)
    )


def write_gguf(
    path: Path,
    shape: Shape,
    weights: dict[str, Tensor],
    kind: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    **fields: object,
) -> Path:
    """A GGUF file by the gguf package's own writer; matrices in ``kind``, norms in float32."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.ffn)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.eps)
    for key, value in fields.items():
        writer.add_string(key.replace("__", "."), str(value))
    for name, weight in weights.items():
        data = weight.float().numpy()
        if "q_proj" in name or "k_proj" in name:
            data = converted(data, shape.heads if "q_proj" in name else shape.kv_heads)
        if data.ndim > 1 and kind != gguf.GGMLQuantizationType.F32:
            writer.add_tensor(gguf_name(name), gguf.quantize(data, kind), raw_dtype=kind)
        else:
            writer.add_tensor(gguf_name(name), np.ascontiguousarray(data))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
