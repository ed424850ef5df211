"""Tiny checkpoints of every family: their config.json, their weights, and what transformers says.

Weights come of each tensor's name, so that both sides make the same ones. The logits that
transformers computes of them are kept in ``logits/``: ``python -m tests.engine.model.families``
(with an interpreter that has transformers) writes them anew, and ``make test-peers`` compares.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

KEPT = Path(__file__).parent / "logits"
TOKENS = [3, 17, 41, 5, 62, 8, 8, 30, 55, 1, 12, 47, 33, 29, 60, 2, 19, 44, 7, 51, 26, 11, 38, 9]
ROWS = (0, 3, 9, 14, 23)
_SIZES: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
    "rope_theta": 700.0,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "factor": 4.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 24,
}
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_LLAMA = _SIZES | {"model_type": "llama"}
_QWEN3 = _SIZES | {"model_type": "qwen3"}
_MOE = _SIZES | {
    "model_type": "qwen3_moe",
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}
_GEMMA = {k: v for k, v in _SIZES.items() if k not in ("hidden_act", "num_hidden_layers")} | {
    "model_type": "gemma3_text",
    "num_hidden_layers": 7,
    "head_dim": 24,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 20,
    "sliding_window": 5,
    "rope_theta": 5000.0,
    "rope_local_base_freq": 70.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    "tie_word_embeddings": True,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "llama-3.1": _LLAMA | {"rope_scaling": _LLAMA3, "tie_word_embeddings": True},
    "llama-linear": _LLAMA | {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "qwen3": _QWEN3,
    "qwen3-yarn": _QWEN3 | {"rope_scaling": _YARN, "tie_word_embeddings": True},
    "qwen3-sliding": _QWEN3
    | {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1},
    "qwen3-moe": _MOE,
    "qwen3-moe-mixed": _MOE | {"mlp_only_layers": [1], "norm_topk_prob": False},
    "gemma3": _GEMMA,
    "gemma3-capped": _GEMMA | {"final_logit_softcapping": 3.0, "tie_word_embeddings": False},
}


def weights_of(config: dict[str, Any]) -> dict[str, Tensor]:
    """float32 by Hugging Face name, so large that attention and routing are far from uniform."""
    return {name: _random(name, shape) for name, shape in _shapes(config).items()}


def _random(name: str, shape: tuple[int, ...]) -> Tensor:
    seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
    values = np.random.Generator(np.random.Philox(seed)).standard_normal(shape, np.float32)
    found = torch.from_numpy(values) / shape[-1] ** 0.5
    if len(shape) == 1:
        return 1 + 2 * found
    return found * (3.0 if "embed" in name or "q_proj" in name else 1.5)


def _shapes(config: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    hidden, size = config["hidden_size"], config["head_dim"]
    query, kv = config["num_attention_heads"] * size, config["num_key_value_heads"] * size
    kind = config["model_type"]
    found = {"model.embed_tokens": (config["vocab_size"], hidden), "model.norm": (hidden,)}
    if not config["tie_word_embeddings"]:
        found["lm_head"] = (config["vocab_size"], hidden)
    norms = ["input_layernorm", "post_attention_layernorm"]
    if kind == "gemma3_text":
        norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for i in range(config["num_hidden_layers"]):
        layer: dict[str, tuple[int, ...]] = dict.fromkeys(norms, (hidden,))
        layer |= {"self_attn.q_proj": (query, hidden), "self_attn.o_proj": (hidden, query)}
        layer |= {"self_attn.k_proj": (kv, hidden), "self_attn.v_proj": (kv, hidden)}
        if kind != "llama":
            layer |= {"self_attn.q_norm": (size,), "self_attn.k_norm": (size,)}
        layer |= _feed_forward(config, i)
        found |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return {f"{name}.weight": shape for name, shape in found.items()}


def _feed_forward(config: dict[str, Any], layer: int) -> dict[str, tuple[int, ...]]:
    hidden, ffn, stems = config["hidden_size"], config["intermediate_size"], ["mlp."]
    found = {}
    if "num_experts" in config and layer not in config["mlp_only_layers"]:
        ffn = config["moe_intermediate_size"]
        stems = [f"mlp.experts.{expert}." for expert in range(config["num_experts"])]
        found["mlp.gate"] = (config["num_experts"], hidden)
    for stem in stems:
        found |= {f"{stem}gate_proj": (ffn, hidden), f"{stem}up_proj": (ffn, hidden)}
        found[f"{stem}down_proj"] = (hidden, ffn)
    return found


def write(path: Path, config: dict[str, Any], weights: dict[str, Tensor]) -> Path:
    """A folder as Hugging Face lays it out."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    save_file(weights, path / "model.safetensors", metadata={"format": "pt"})
    return path


def kept(name: str) -> Tensor:
    """The logits of ``ROWS`` after ``TOKENS``, [rows, V] float64, as transformers computed them."""
    return torch.tensor(json.loads((KEPT / f"{name}.json").read_text()), dtype=torch.float64)


def by_transformers(folder: Path) -> Tensor:
    """The same, computed now in float64 by the library's eager attention."""
    from transformers import AutoModelForCausalLM  # pyright: ignore[reportMissingImports]

    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
    )
    with torch.no_grad():
        return model(torch.tensor([TOKENS])).logits[0, list(ROWS)]


def main(to: Path) -> None:
    """Write every family's logits to the folder ``to``."""
    import tempfile

    torch.set_num_threads(1)
    to.mkdir(parents=True, exist_ok=True)
    for name, config in CONFIGS.items():
        with tempfile.TemporaryDirectory() as scratch:
            folder = write(Path(scratch), config, weights_of(config))
            rows = by_transformers(folder).tolist()
        lines = [json.dumps([round(x, 7) for x in row]) for row in rows]
        (to / f"{name}.json").write_text("[\n" + ",\n".join(lines) + "\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else KEPT)
