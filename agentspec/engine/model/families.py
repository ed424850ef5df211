"""What each family of models adds to the plain shape, read from a ``config.json``. No torch.

Names and defaults are those of Hugging Face's configuration classes (transformers 5.24), in their
older spelling (``rope_scaling``, ``rope_theta``) and their newer one (``rope_parameters``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from .config import Experts, ModelConfig, Scaling, from_huggingface
from .errors import UnsupportedModel

_Raw = Mapping[str, Any]
_ROPE = ("rope_scaling", "rope_parameters", "rope_theta")
_GEMMA3 = {
    "vocab_size": 262_208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "max_position_embeddings": 131_072,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "hidden_activation": "gelu_pytorch_tanh",
}
"""What published Gemma 3 files leave out (``Gemma3TextConfig``)."""


def model_config(raw: _Raw) -> ModelConfig:
    """The shape in a ``config.json``. Raises ``UnsupportedModel`` naming what is not known."""
    name = str(raw.get("model_type"))
    if name not in FAMILIES:
        known = ", ".join(sorted(FAMILIES))
        raise UnsupportedModel(f"architecture '{name}' is not supported (known: {known})")
    return FAMILIES[name](raw)


def _llama(raw: _Raw) -> ModelConfig:
    theta, scaling = _rope(raw, raw.get("rope_parameters"))
    plain = {key: value for key, value in raw.items() if key not in _ROPE}
    config = replace(from_huggingface(plain), rope_theta=theta, scaling=scaling)
    if scaling is None or scaling.kind != "yarn":
        return config
    # Who turns YaRN on adds it to the file and leaves the number of positions as it was.
    reach = int(scaling.factor * scaling.original)
    return replace(config, context_tokens=max(config.context_tokens, reach))


def _qwen3(raw: _Raw) -> ModelConfig:
    config = replace(_llama(raw), qk_norm=True)
    full = int(raw.get("max_window_layers", config.layers))
    slides = [layer >= full for layer in range(config.layers)]
    window = raw.get("sliding_window") if raw.get("use_sliding_window") else None
    return _with_windows(config, raw.get("layer_types"), slides, window)


def _qwen3_moe(raw: _Raw) -> ModelConfig:
    """Qwen3-MoE and Qwen3-Coder."""
    config = _qwen3(raw)
    listed, step = set(raw.get("mlp_only_layers") or ()), int(raw.get("decoder_sparse_step", 1))
    dense = [i for i in range(config.layers) if i in listed or (i + 1) % step]
    names = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
    for name in names:
        if not isinstance(raw.get(name), int) or raw[name] < 1:
            raise UnsupportedModel(f"config.json: {name} is {raw.get(name)}, not a number above 0")
    count, per_token, ffn = (int(raw[name]) for name in names)
    normalised = bool(raw.get("norm_topk_prob", False))
    return replace(config, experts=Experts(count, per_token, ffn, normalised, tuple(dense)))


def _gemma3(raw: _Raw) -> ModelConfig:
    raw = _GEMMA3 | dict(raw)
    for flag in ("use_bidirectional_attention", "attn_logit_softcapping"):
        if raw.get(flag):
            raise UnsupportedModel(f"config.json: {flag} is not supported")
    if raw["hidden_activation"] != "gelu_pytorch_tanh":
        kind = raw["hidden_activation"]
        raise UnsupportedModel(f"config.json: hidden_activation '{kind}' is not supported")
    both = raw.get("rope_parameters") or {}
    theta, scaling = _rope({"rope_theta": 1e6} | raw, both.get("full_attention"))
    local = dict(both.get("sliding_attention") or {})
    local_theta, slowed = _rope({"rope_theta": raw.get("rope_local_base_freq", 10_000.0)}, local)
    if slowed is not None:
        raise UnsupportedModel("config.json: rope scaling of sliding layers is not supported")
    plain = {key: value for key, value in raw.items() if key not in (*_ROPE, "hidden_act")}
    config = replace(
        from_huggingface(plain),
        rope_theta=theta,
        scaling=scaling,
        qk_norm=True,
        local_theta=local_theta,
        score_scale=float(raw["query_pre_attn_scalar"]) ** -0.5,
        logit_cap=raw.get("final_logit_softcapping"),
    )
    step = int(raw.get("sliding_window_pattern") or raw.get("_sliding_window_pattern") or 6)
    slides = [bool((i + 1) % step) for i in range(config.layers)]
    return _with_windows(config, raw.get("layer_types"), slides, raw["sliding_window"])


def _gemma3_with_pictures(raw: _Raw) -> ModelConfig:
    """The text model of a Gemma 3 that also sees pictures, which this engine doesn't show it."""
    return _gemma3({**raw.get("text_config", {}), "model_type": "gemma3"})


FAMILIES: Mapping[str, Callable[[_Raw], ModelConfig]] = {
    "llama": _llama,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "gemma3": _gemma3_with_pictures,
    "gemma3_text": _gemma3,
}


def _with_windows(
    config: ModelConfig, kinds: Sequence[str] | None, slides: list[bool], window: int | None
) -> ModelConfig:
    """kinds: ``layer_types`` where a file lists them, which go before ``slides``."""
    if kinds is not None:
        strange = [k for k in kinds if k not in ("full_attention", "sliding_attention")]
        if strange or len(kinds) != config.layers:
            said = strange or f"of {len(kinds)} layers"
            raise UnsupportedModel(f"config.json: layer_types {said} are not supported")
        slides = [kind == "sliding_attention" for kind in kinds]
    sliding = tuple(layer for layer, slide in enumerate(slides) if slide)
    return replace(config, window=int(window), sliding=sliding) if sliding and window else config


def _rope(raw: _Raw, newer: _Raw | None) -> tuple[float, Scaling | None]:
    """Base and scaling. newer: ``rope_parameters`` (of one kind of layer), which goes before."""
    found = {**(raw.get("rope_scaling") or {}), **(newer or {})}
    theta = float(found.get("rope_theta") or raw.get("rope_theta") or 10000.0)
    kind = found.get("rope_type", found.get("type", "default"))
    if float(found.get("partial_rotary_factor") or raw.get("partial_rotary_factor") or 1.0) != 1.0:
        raise UnsupportedModel("config.json: partial_rotary_factor is not supported")
    if kind == "default":
        return theta, None
    try:
        if kind == "linear":
            return theta, Scaling("linear", float(found["factor"]))
        if kind == "llama3":
            low, high = float(found["low_freq_factor"]), float(found["high_freq_factor"])
            original = int(found["original_max_position_embeddings"])
            return theta, Scaling("llama3", float(found["factor"]), original, low, high)
        if kind == "yarn":
            return theta, _yarn(found)
    except KeyError as error:
        raise UnsupportedModel(f"config.json: rope scaling '{kind}' lacks {error}") from None
    raise UnsupportedModel(f"config.json: rope scaling '{kind}' is not supported")


def _yarn(found: _Raw) -> Scaling:
    factor, attention = float(found["factor"]), found.get("attention_factor")
    if attention is None:
        whole, every = found.get("mscale"), found.get("mscale_all_dim")
        attention = _magnitude(factor, 1.0)
        if whole and every:
            attention = _magnitude(factor, whole) / _magnitude(factor, every)
    return Scaling(
        "yarn",
        factor,
        int(found["original_max_position_embeddings"]),
        float(found.get("beta_slow") or 1),
        float(found.get("beta_fast") or 32),
        float(attention),
        bool(found.get("truncate", True)),
    )


def _magnitude(factor: float, scale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0
