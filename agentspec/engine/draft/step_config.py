"""What the ``config.json`` of an EAGLE-3 or MTP draft says, in the layouts in use. No torch.

Sources: EAGLE-3 (arXiv 2503.01840; SafeAILab/EAGLE and sgl-project/SpecForge name the layer
``midlayer`` and number taps by layer outputs; without a list they tap what enters layers 2, L/2 and
L-3), speculators (vllm-project/speculators: ids count the embedding as 0, so are one higher),
DeepSpec (deepseek-ai/DeepSpec: outputs from 0), MTP as ``train/export.py`` writes it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from agentspec.engine.model.config import ModelConfig, from_huggingface

from .errors import DraftMismatch, UnsupportedDraft
from .said import check_kinds
from .target import TargetFacts, check_identity

STEP_METHODS = ("eagle3", "mtp")
_STEPS = 7
_REFUSED = ("fc_norm", "norm_before_fc")


@dataclass(frozen=True, slots=True, kw_only=True)
class StepConfig:
    """A draft of one layer that feeds its own output back. shape: of the layer, with the target's
    vocabulary.

    steps: most tokens of one proposal. taps: decoder layers of the target (outputs, from 0); None:
    EAGLE's default for the target's depth. draft_vocab: rows of its own logits, or None: the
    target's. norm_first: the residual stream is what ``hidden_norm`` gives, not what it takes.
    carries_normed: the next step takes the output after the last norm. target: what it was trained
    for (``TargetFacts``' fields), as far as it says.
    """

    method: str
    shape: ModelConfig
    qk_norm: bool
    steps: int
    taps: tuple[int, ...] | None
    draft_vocab: int | None = None
    norm_first: bool = False
    carries_normed: bool = False
    target: Mapping[str, Any] = field(default_factory=dict)


def is_step_draft(raw: Mapping[str, Any]) -> bool:
    """Whether a ``config.json`` is one of these methods'. Raises ``UnsupportedDraft``."""
    check_kinds(raw)
    said = raw.get("speculators_model_type") or (raw.get("agentspec") or {}).get("method")
    if said is not None:
        return said in STEP_METHODS
    return any("eagle3" in name.lower() or "mtp" in name.lower() for name in _architectures(raw))


def step_config(raw: Mapping[str, Any]) -> StepConfig:
    """Of a ``config.json``. Raises ``UnsupportedDraft`` or ``UnsupportedModel``, with the entry."""
    check_kinds(raw)
    for name in _REFUSED:
        if raw.get(name):
            raise UnsupportedDraft(f"config.json of the draft: '{name}' is not known here")
    if "speculators_model_type" in raw:
        return _speculators(raw)
    if "target_layer_ids" in raw:
        return _deepspec(raw)
    return _specforge(raw)


def fitted_taps(draft: StepConfig, target: TargetFacts) -> tuple[int, ...]:
    """The taps for this target. Raises ``DraftMismatch``, naming the first entry that is wrong."""
    served, last = target.config, target.config.layers - 1
    taps = draft.taps
    if taps is None:
        taps = (1, served.layers // 2 - 1, served.layers - 4)
    if draft.method == "mtp":
        if taps != (last,):
            raise DraftMismatch("target_layer_ids", f"{list(taps)}, for MTP it must be [{last}]")
    elif not taps or taps[0] < 0 or taps[-1] >= last or list(taps) != sorted(set(taps)):
        raise DraftMismatch(
            "target_layer_ids",
            f"{list(taps)} must ascend within 0..{last - 1} (the target has {served.layers} "
            "layers, and the last one's output is not for drafts)",
        )
    for name, own, theirs in (
        ("hidden_size", draft.shape.hidden, served.hidden),
        ("vocab_size", draft.shape.vocab, served.vocab),
    ):
        if own != theirs:
            raise DraftMismatch(name, f"{own}, but the target's is {theirs}")
    check_identity(draft.target, target)
    return taps


def _architectures(raw: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(raw.get("architectures") or ())


def _shape(raw: Mapping[str, Any]) -> tuple[ModelConfig, bool]:
    """The layer's shape, and whether q and k are normed."""
    kind = raw.get("model_type")
    if kind not in ("llama", "qwen3"):
        raise UnsupportedDraft(f"config.json of the draft: model_type '{kind}' (llama or qwen3)")
    if raw.get("num_hidden_layers", 1) != 1:
        raise UnsupportedDraft("config.json of the draft: 'num_hidden_layers' must be 1")
    if raw.get("partial_rotary_factor", 1.0) != 1.0 or raw.get("sliding_window"):
        raise UnsupportedDraft("config.json of the draft: partial rotary or sliding attention")
    return from_huggingface(raw), kind == "qwen3"


def _deepspec(raw: Mapping[str, Any]) -> StepConfig:
    extra = raw.get("agentspec") or {}
    shape, qk_norm = _shape(raw)
    mtp = any("mtp" in name.lower() for name in _architectures(raw))
    method = extra.get("method", "mtp" if mtp else "eagle3")
    return StepConfig(
        method=method,
        shape=shape,
        qk_norm=qk_norm,
        steps=int(raw.get("ttt_length") or raw.get("block_size") or _STEPS),
        taps=tuple(int(one) for one in raw["target_layer_ids"]),
        draft_vocab=raw.get("draft_vocab_size"),
        norm_first=bool(raw.get("norm_before_residual", False)),
        carries_normed=method == "mtp" or bool(raw.get("norm_output", False)),
        target=extra.get("target") or {},
    )


def _speculators(raw: Mapping[str, Any]) -> StepConfig:
    if raw["speculators_model_type"] != "eagle3":
        raise UnsupportedDraft(f"speculators_model_type '{raw['speculators_model_type']}'")
    extra = raw.get("agentspec") or {}
    if "norm_before_residual" not in raw and not extra:
        raise UnsupportedDraft("config.json of the draft lacks 'norm_before_residual'")
    shape, qk_norm = _shape(raw.get("transformer_layer_config") or {})
    ids = raw.get("eagle_aux_hidden_state_layer_ids") or raw.get("aux_hidden_state_layer_ids")
    proposals = (raw.get("speculators_config") or {}).get("proposal_methods") or [{}]
    _same_width(raw, shape)
    return StepConfig(
        method="eagle3",
        shape=shape,
        qk_norm=qk_norm,
        steps=int(proposals[0].get("speculative_tokens") or _STEPS),
        taps=None if ids is None else tuple(int(one) - 1 for one in ids),
        draft_vocab=raw.get("draft_vocab_size"),
        norm_first=bool(raw.get("norm_before_residual", False)),
        carries_normed=bool(raw.get("norm_output", False)),
        target=extra.get("target") or {},
    )


def _specforge(raw: Mapping[str, Any]) -> StepConfig:
    shape, qk_norm = _shape(raw)
    nested = raw.get("eagle_config") or {}
    name = "eagle_aux_hidden_state_layer_ids"
    ids = nested.get(name) or raw.get(name)
    _same_width(raw, shape)
    return StepConfig(
        method="eagle3",
        shape=shape,
        qk_norm=qk_norm,
        steps=_STEPS,
        taps=None if ids is None else tuple(int(one) for one in ids),
        draft_vocab=raw.get("draft_vocab_size"),
        norm_first=bool(raw.get("norm_before_residual", False)),
        carries_normed=bool(raw.get("norm_output", False)),
    )


def _same_width(raw: Mapping[str, Any], shape: ModelConfig) -> None:
    width = raw.get("target_hidden_size") or shape.hidden
    if width != shape.hidden:
        raise UnsupportedDraft(f"target_hidden_size {width} other than the draft's {shape.hidden}")
