"""What a draft's ``config.json`` says, in the three layouts in use. No torch.

Sources: DeepSpec (deepseek-ai/DeepSpec, config/dspark), speculators (vllm-project/speculators,
dspark and dflash config), DFlash (z-lab/dflash). DeepSpec and DFlash number layers by their outputs
from 0; speculators counts the embedding as 0, so its ids are one higher.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentspec.engine.model.config import ModelConfig, from_huggingface

from .errors import UnsupportedDraft
from .said import check_kinds

BLOCK_METHODS = ("dspark", "dflash", "jetspec")
MARKOV_HEADS = ("vanilla", "gated", "rnn")
MOST_ROWS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig:
    """A block draft. shape: of its own layers, with the vocabulary of the target.

    taps: decoder layers of the target (outputs, from 0, ascending). from_anchor: row k proposes
    the token k + 1 behind the anchor; else row k proposes the k-th, and row 0 nothing. causal: rows
    see no later rows of their block. draft_vocab: rows of its own logits, or None: the target's.
    temperatures: of the confidence of each proposed token; masked_temperatures: under a grammar.
    target: what it was trained for (``TargetFacts``' fields), as far as it says.
    """

    method: str
    shape: ModelConfig
    qk_norm: bool
    block_size: int
    mask_token_id: int
    taps: tuple[int, ...]
    markov_rank: int = 0
    markov_head: str = "vanilla"
    confidence: bool = False
    confidence_with_markov: bool = True
    from_anchor: bool = True
    causal: bool = False
    draft_vocab: int | None = None
    temperatures: tuple[float, ...] = ()
    masked_temperatures: tuple[float, ...] = ()
    target: Mapping[str, Any] = field(default_factory=dict)

    @property
    def proposals(self) -> int:
        """Most tokens of one proposal."""
        return self.block_size if self.from_anchor else self.block_size - 1

    @property
    def first_row(self) -> int:
        """The row that proposes the first token."""
        return 0 if self.from_anchor else 1


def block_config(raw: Mapping[str, Any]) -> BlockConfig:
    """Of a ``config.json``. Raises ``UnsupportedDraft`` or ``UnsupportedModel``, with the entry."""
    check_kinds(raw)
    if "speculators_model_type" in raw:
        fields = _speculators(raw)
    elif "dflash_config" in raw or "DFlashDraftModel" in (raw.get("architectures") or ()):
        fields = _zlab(raw)
    else:
        fields = _deepspec(raw)
    _check(fields)
    return fields


def _need(raw: Mapping[str, Any], name: str) -> Any:
    if raw.get(name) is None:
        raise UnsupportedDraft(f"config.json of the draft lacks '{name}'")
    return raw[name]


def _shape(raw: Mapping[str, Any]) -> tuple[ModelConfig, bool]:
    """The layers' shape, and whether q and k are normed."""
    if any(kind != "full_attention" for kind in raw.get("layer_types") or ()):
        raise UnsupportedDraft("config.json of the draft: 'layer_types' other than full_attention")
    if raw.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedDraft("config.json of the draft: 'partial_rotary_factor' below 1")
    kind = _need(raw, "model_type")
    if kind not in ("llama", "qwen3"):
        raise UnsupportedDraft(f"config.json of the draft: model_type '{kind}' (llama or qwen3)")
    return from_huggingface(raw), kind == "qwen3"


def _heads(raw: Mapping[str, Any]) -> dict[str, Any]:
    rank = int(raw.get("markov_rank") or 0)
    return {
        "markov_rank": rank,
        "markov_head": raw.get("markov_head_type") or "vanilla",
        "confidence": bool(raw.get("enable_confidence_head", False)),
        "confidence_with_markov": rank > 0 and bool(raw.get("confidence_head_with_markov", True)),
    }


def _deepspec(raw: Mapping[str, Any]) -> BlockConfig:
    extra = raw.get("agentspec") or {}
    shape, qk_norm = _shape(raw)
    heads = _heads(raw)
    causal = bool(raw.get("causal", False))
    derived = "jetspec" if causal else "dspark" if heads["markov_rank"] else "dflash"
    calibration = extra.get("calibration") or {}
    return BlockConfig(
        method=extra.get("method", derived),
        shape=shape,
        qk_norm=qk_norm,
        block_size=int(_need(raw, "block_size")),
        mask_token_id=int(_need(raw, "mask_token_id")),
        taps=tuple(_need(raw, "target_layer_ids")),
        from_anchor=bool(raw.get("sample_from_anchor", True)),
        causal=causal,
        draft_vocab=raw.get("draft_vocab_size"),
        temperatures=tuple(calibration.get("temperatures") or ()),
        masked_temperatures=tuple(calibration.get("masked_temperatures") or ()),
        target=extra.get("target") or {},
        **heads,
    )


def _speculators(raw: Mapping[str, Any]) -> BlockConfig:
    method = raw["speculators_model_type"]
    shape, qk_norm = _shape(_need(raw, "transformer_layer_config"))
    ids = _need(raw, "aux_hidden_state_layer_ids")
    calibration = (raw.get("agentspec") or {}).get("calibration") or {}
    return BlockConfig(
        method=method,
        shape=shape,
        qk_norm=qk_norm,
        block_size=int(_need(raw, "block_size")),
        mask_token_id=int(_need(raw, "mask_token_id")),
        taps=tuple(int(one) - 1 for one in ids),
        from_anchor=bool(raw.get("sample_from_anchor", method == "dspark")),
        causal=bool(raw.get("causal", False)),
        draft_vocab=raw.get("draft_vocab_size"),
        temperatures=tuple(calibration.get("temperatures") or ()),
        masked_temperatures=tuple(calibration.get("masked_temperatures") or ()),
        target=(raw.get("agentspec") or {}).get("target") or {},
        **_heads(raw),
    )


def _zlab(raw: Mapping[str, Any]) -> BlockConfig:
    nested = raw.get("dflash_config") or {}
    both = {**raw, **nested}
    shape, qk_norm = _shape(raw)
    return BlockConfig(
        method="dflash",
        shape=shape,
        qk_norm=qk_norm,
        block_size=int(_need(both, "block_size")),
        mask_token_id=int(_need(both, "mask_token_id")),
        taps=tuple(_need(both, "target_layer_ids")),
        from_anchor=False,
        causal=bool(both.get("causal", False)),
    )


def _check(config: BlockConfig) -> None:
    """Raise ``UnsupportedDraft`` for what makes no sense whatever the target is."""
    wrong = None
    if config.method not in BLOCK_METHODS:
        wrong = f"method '{config.method}' is none of {', '.join(BLOCK_METHODS)}"
    elif not 1 + config.first_row <= config.block_size <= MOST_ROWS:
        wrong = f"block_size {config.block_size}"
    elif config.markov_rank and config.markov_head not in MARKOV_HEADS:
        wrong = f"markov_head_type '{config.markov_head}' (known: {', '.join(MARKOV_HEADS)})"
    elif config.draft_vocab is not None and config.draft_vocab > config.shape.vocab:
        wrong = f"draft_vocab_size {config.draft_vocab} is above vocab_size"
    elif not config.taps or list(config.taps) != sorted(set(config.taps)):
        wrong = f"target_layer_ids {list(config.taps)} must ascend"
    elif any(t <= 0 for t in (*config.temperatures, *config.masked_temperatures)):
        wrong = "calibration: a temperature that is not positive"
    if wrong is not None:
        raise UnsupportedDraft(f"config.json of the draft: {wrong}")
