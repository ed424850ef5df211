"""The shape of a model, read from a checkpoint's own metadata. No torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from .errors import UnsupportedModel


class Stretch(NamedTuple):
    """A window of ``factor`` (at least 1) times the positions, without training: quality falls.

    linear: positions are divided by the factor (Chen et al., arXiv 2306.15595). ntk: the base grows
    so that the slowest pair of a head turns as far over the longer window as it did before, and the
    fast ones stay nearly as they were ("NTK-aware"; Peng et al., arXiv 2309.00071, section 3.1).
    """

    factor: float = 1.0
    way: Literal["linear", "ntk"] = "ntk"


UNSTRETCHED = Stretch()


class Scaling(NamedTuple):
    """How a checkpoint's own rotary positions were lengthened when it was trained (``rope.py``).

    original: positions before that. low, high: llama3: turns over them below which a pair is slowed
    by the whole factor, and above which it isn't (``low_freq_factor``, ``high_freq_factor``); yarn:
    the same as ``beta_slow``, ``beta_fast``. attention: factor on cos and sin. truncate: yarn's
    ramp begins and ends at whole pairs.
    """

    kind: Literal["linear", "llama3", "yarn"]
    factor: float
    original: int = 0
    low: float = 1.0
    high: float = 4.0
    attention: float = 1.0
    truncate: bool = True


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts. count of them, each of ``ffn``; per_token of them serve a token.

    normalised: the weights of those add up to 1. dense: layers that have one feed-forward instead.
    """

    count: int
    per_token: int
    ffn: int
    normalised: bool
    dense: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Everything a forward pass needs to know beside the weights.

    architecture: a name of the registry (``agentspec.engine.model.ARCHITECTURES``).
    vocab: rows of the embedding, padding included. context_tokens: positions it was trained for
    (or stretched to).
    tied: lm_head is the embedding. position_scale: positions are divided by it before they turn.
    qk_norm: each head of q and k is normed before it turns. sliding: layers (from 0) whose rows see
    the last ``window`` positions only, themselves included; local_theta: their own base, unscaled.
    score_scale: of attention; None: head_dim ** -0.5. logit_cap: cap * tanh(logits / cap).
    """

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context_tokens: int
    rope_theta: float
    norm_eps: float
    tied: bool
    position_scale: float = 1.0
    scaling: Scaling | None = None
    qk_norm: bool = False
    window: int | None = None
    sliding: tuple[int, ...] = ()
    local_theta: float | None = None
    score_scale: float | None = None
    logit_cap: float | None = None
    experts: Experts | None = None

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads:
            raise UnsupportedModel(
                f"{self.heads} attention heads cannot share {self.kv_heads} K/V heads evenly"
            )

    def stretched(self, stretch: Stretch) -> ModelConfig:
        """This shape with a longer window. Raises ``UnsupportedModel``."""
        factor = stretch.factor
        assert factor >= 1.0
        if factor == 1.0:
            return self
        if self.scaling is not None or self.sliding:
            raise UnsupportedModel(
                "engine.rope_scale: this model's positions are scaled or its layers see a window; "
                "stretching those is not supported"
            )
        longer = replace(self, context_tokens=int(self.context_tokens * factor))
        if stretch.way == "linear":
            return replace(longer, position_scale=self.position_scale * factor)
        exponent = self.head_dim / (self.head_dim - 2)
        return replace(longer, rope_theta=self.rope_theta * factor**exponent)


def checked_taps(taps: Sequence[int], config: ModelConfig) -> tuple[int, ...]:
    """``taps``. Raises ``ValueError`` naming a decoder layer that isn't there."""
    for tap in taps:
        if not 0 <= tap < config.layers:
            raise ValueError(f"decoder layer {tap} of a model that has {config.layers}, from 0")
    return tuple(taps)


def from_huggingface(config: Mapping[str, Any]) -> ModelConfig:
    """The plain shape in a ``config.json``, of drafts too: what a family adds is ``families.py``'s.

    Raises ``UnsupportedModel`` naming what is not known.
    """
    scaling = config.get("rope_scaling") or {}
    rope = config.get("rope_parameters") or {}
    kind = scaling.get("rope_type", scaling.get("type", rope.get("rope_type", "default")))
    if kind != "default":
        raise UnsupportedModel(f"config.json: rope scaling '{kind}' is not supported")
    for flag in ("attention_bias", "mlp_bias"):
        if config.get(flag):
            raise UnsupportedModel(f"config.json: {flag} is not supported")
    if config.get("hidden_act", "silu") != "silu":
        raise UnsupportedModel(f"config.json: hidden_act '{config['hidden_act']}' is not supported")
    try:
        heads = int(config["num_attention_heads"])
        return ModelConfig(
            architecture=config["model_type"],
            layers=int(config["num_hidden_layers"]),
            hidden=int(config["hidden_size"]),
            ffn=int(config["intermediate_size"]),
            heads=heads,
            kv_heads=int(config.get("num_key_value_heads") or heads),
            head_dim=int(config.get("head_dim") or int(config["hidden_size"]) // heads),
            vocab=int(config["vocab_size"]),
            context_tokens=int(config["max_position_embeddings"]),
            rope_theta=float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
            norm_eps=float(config["rms_norm_eps"]),
            tied=bool(config.get("tie_word_embeddings", False)),
        )
    except KeyError as error:
        raise UnsupportedModel(f"config.json lacks {error}") from None


def from_gguf(fields: Mapping[str, Any], *, vocab: int, tied: bool) -> ModelConfig:
    """The shape in a GGUF file's key-value section (llama.cpp's names).

    Raises ``UnsupportedModel`` naming what is not known.
    """
    architecture = fields.get("general.architecture")
    if architecture != "llama":
        raise UnsupportedModel(
            f"architecture '{architecture}' is not supported in a GGUF file (known: llama); take "
            "the model's folder of safetensors"
        )

    def get(name: str, default: Any = None) -> Any:
        value = fields.get(f"{architecture}.{name}", default)
        if value is None:
            raise UnsupportedModel(f"GGUF lacks {architecture}.{name}")
        return value

    scaling = get("rope.scaling.type", "none")
    if scaling != "none":
        raise UnsupportedModel(f"GGUF: rope scaling '{scaling}' is not supported")
    heads, hidden = int(get("attention.head_count")), int(get("embedding_length"))
    head_dim = int(get("attention.key_length", hidden // heads))
    if int(get("rope.dimension_count", head_dim)) != head_dim:
        raise UnsupportedModel("GGUF: rotary embedding of a part of each head is not supported")
    return ModelConfig(
        architecture=str(architecture),
        layers=int(get("block_count")),
        hidden=hidden,
        ffn=int(get("feed_forward_length")),
        heads=heads,
        kv_heads=int(get("attention.head_count_kv", heads)),
        head_dim=head_dim,
        vocab=vocab,
        context_tokens=int(get("context_length")),
        rope_theta=float(get("rope.freq_base", 10000.0)),
        norm_eps=float(get("attention.layer_norm_rms_epsilon")),
        tied=tied,
    )
