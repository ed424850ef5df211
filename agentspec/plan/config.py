"""A ``config.json`` as Hugging Face writes it, read into a ``Shape``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .hardware import PlanError
from .shape import Shape

_FP4_BYTES = 4.25 / 8
"""Blocks of 32 four-bit values with a scale of eight bits (MXFP4)."""


def read(path: Path) -> Shape:
    """Raises ``PlanError`` naming the field that is missing, or ``OSError``."""
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise PlanError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise PlanError(f"{path} holds no object")
    return shape(found, path.parent.name or path.name, str(path))


def shape(found: dict[str, Any], name: str, source: str) -> Shape:
    """Raises ``PlanError``."""
    inner = found.get("text_config")
    fields = found | inner if isinstance(inner, dict) else found
    hidden, heads = _count(fields, "hidden_size"), _count(fields, "num_attention_heads")
    layers = _count(fields, "num_hidden_layers")
    experts = _first(fields, "num_experts", "n_routed_experts", "num_local_experts")
    return Shape(
        name=name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_first(fields, "num_key_value_heads") or heads,
        head_dim=_first(fields, "head_dim") or hidden // heads,
        width=_first(fields, "intermediate_size") or _count(fields, "moe_intermediate_size"),
        vocab=_count(fields, "vocab_size"),
        tied=bool(fields.get("tie_word_embeddings", False)),
        experts=experts,
        active=_first(fields, "num_experts_per_tok", "experts_per_token"),
        shared=_first(fields, "n_shared_experts"),
        expert_width=_first(fields, "moe_intermediate_size", "intermediate_size"),
        dense_layers=_first(fields, "first_k_dense_replace") if experts else 0,
        source=source,
        **_attention(fields, layers, hidden, heads),
        **_numbers(fields),
    )


def _attention(fields: dict[str, Any], layers: int, hidden: int, heads: int) -> dict[str, Any]:
    """What differs from keys and values of every head in every layer."""
    ratios = fields.get("compress_ratios")
    if isinstance(ratios, list):
        return {
            "ratios": tuple(ratios[:layers]),
            "window": _first(fields, "sliding_window"),
            "attention_params": compressed_params(fields, hidden, heads),
        }
    latent = _first(fields, "kv_lora_rank")
    if latent:
        rotary = _count(fields, "qk_rope_head_dim")
        plain, value = _count(fields, "qk_nope_head_dim"), _count(fields, "v_head_dim")
        rank = _first(fields, "q_lora_rank")
        asked = heads * (plain + rotary)
        queries = rank * (hidden + asked) if rank else hidden * asked
        kept = hidden * (latent + rotary) + latent * heads * (plain + value)
        params = queries + kept + heads * value * hidden
        return {"mla": latent + rotary, "attention_params": params}
    kinds = fields.get("layer_types")
    window = _first(fields, "sliding_window")
    if isinstance(kinds, list) and window:
        return {"full_layers": kinds[:layers].count("full_attention"), "window": window}
    return {}


def compressed_params(fields: dict[str, Any], hidden: int, heads: int) -> int:
    """One attention layer of DeepSeek-V4: low-rank queries, one latent, grouped low-rank output.

    Its indexer and compressors (about a tenth more, in half of the layers) are left out.
    """
    size, rank = _count(fields, "head_dim"), _count(fields, "q_lora_rank")
    out, groups = _count(fields, "o_lora_rank"), _count(fields, "o_groups")
    queries = rank * (hidden + heads * size)
    return queries + hidden * size + heads * size * out + groups * out * hidden


def _numbers(fields: dict[str, Any]) -> dict[str, Any]:
    """Bytes of an element, by ``quantization_config``; bf16 where there is none."""
    quantized = fields.get("quantization_config")
    if not isinstance(quantized, dict):
        return {}
    method = quantized.get("quant_method")
    narrow_experts = "fp4" in (fields.get("expert_dtype"), quantized.get("expert_dtype"))
    if method == "mxfp4":
        return {"expert_bytes": _FP4_BYTES}
    if method in ("fp8", "fbgemm_fp8"):
        return {"weight_bytes": 1.0, "expert_bytes": _FP4_BYTES if narrow_experts else 1.0}
    raise PlanError(f"quantization_config.quant_method: '{method}' is not known (fp8, mxfp4)")


def _first(fields: dict[str, Any], *names: str) -> int:
    """The first of them that is a number; 0: none is."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _count(fields: dict[str, Any], name: str) -> int:
    found = _first(fields, name)
    if found <= 0:
        raise PlanError(f"config.json: '{name}' is missing or no positive number")
    return found
