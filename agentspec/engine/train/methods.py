"""The five methods' own sizes and losses, and how ``draft.toml`` changes them. No torch."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentspec.engine.model.config import ModelConfig

from .config import DraftConfig, LossConfig
from .spec import DraftSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """Coefficients of ``losses.py`` and of the confidence head's binary cross entropy.

    decay: exp(-k / decay) at position k, or with ``geometric`` decay^k. per_sequence: the mean is
    of each sequence's own (EAGLE-3 suffers from the global one: DeepSpec), not of all tokens.
    """

    ce: float
    l1: float
    soft: float
    confidence: float
    decay: float
    geometric: bool
    per_sequence: bool

    def weights(self, count: int) -> list[float]:
        """The weight of each of ``count`` positions."""
        from math import exp

        if self.geometric:
            return [self.decay**k for k in range(count)]
        return [exp(-k / self.decay) for k in range(count)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Method:
    layers: int
    block_size: int
    markov_rank: int = 0
    confidence: bool = False
    sample_from_anchor: bool = True
    causal: bool = False
    taps: int | None = None
    loss: Loss


def _loss(ce: float, l1: float = 0, soft: float = 0, confidence: float = 0) -> Loss:
    return Loss(
        ce=ce, l1=l1, soft=soft, confidence=confidence, decay=4.0, geometric=False,
        per_sequence=False,
    )  # fmt: skip


def _step_loss(ce: float, soft: float) -> Loss:
    return Loss(ce=ce, l1=0, soft=soft, confidence=0, decay=0.8, geometric=True, per_sequence=True)


_METHODS = {
    "dspark": _Method(
        layers=2, block_size=7, markov_rank=64, confidence=True, loss=_loss(0.1, 0.9, 0, 1.0)
    ),
    "dflash": _Method(layers=2, block_size=8, sample_from_anchor=False, loss=_loss(1.0)),
    "jetspec": _Method(layers=2, block_size=7, causal=True, loss=_loss(0, 0, 1.0)),
    "eagle3": _Method(layers=1, block_size=7, taps=3, loss=_step_loss(0, 1.0)),
    "mtp": _Method(layers=1, block_size=7, loss=_step_loss(1.0, 0)),
}
"""Each proposes seven tokens. DeepSpec's settings where it has the method; JetSpec: arXiv
2606.18394 (causal block, KL); MTP: arXiv 2412.19437 (cross entropy). EAGLE-3 taps a low, a middle
and a high layer (arXiv 2503.01840, section 3.1)."""


def spec_of(
    draft: DraftConfig, target: ModelConfig, layer_ids: tuple[int, ...], mask_token_id: int
) -> DraftSpec:
    """The draft's shape. layer_ids: those of the features; mtp takes the last layer instead.

    Raises ``TrainError``.
    """
    method = _METHODS[draft.method]

    def chosen(value: int | None, own: int) -> int:
        return own if value is None else value

    confidence = method.confidence if draft.confidence_head is None else draft.confidence_head
    rank = chosen(draft.markov_rank, method.markov_rank)
    return DraftSpec(
        method=draft.method,
        target=replace(target, tied=False),
        layers=chosen(draft.layers, method.layers),
        block_size=chosen(draft.block_size, method.block_size),
        mask_token_id=mask_token_id,
        target_layer_ids=_taps(draft, method, target.layers, layer_ids),
        markov_rank=rank,
        markov_head_type=draft.markov_head_type,
        confidence_head=confidence,
        confidence_with_markov=rank > 0,
        sample_from_anchor=method.sample_from_anchor,
        causal=method.causal,
        draft_vocab=draft.vocabulary,
    )


def _taps(
    draft: DraftConfig, method: _Method, layers: int, cached: tuple[int, ...]
) -> tuple[int, ...]:
    """The target's layers that the draft is given: its own count of the cached ones, spread."""
    if draft.method == "mtp":
        return (layers - 1,)
    if draft.target_layers is not None:
        return tuple(draft.target_layers)
    if method.taps is None or method.taps >= len(cached):
        return cached
    last = len(cached) - 1
    return tuple(cached[round(last * i / (method.taps - 1))] for i in range(method.taps))


def loss_of(method: str, config: LossConfig) -> Loss:
    """The method's loss with what ``draft.toml`` sets."""
    own = _METHODS[method].loss

    def chosen(value: float | None, default: float) -> float:
        return default if value is None else value

    return Loss(
        ce=chosen(config.ce, own.ce),
        l1=chosen(config.l1, own.l1),
        soft=chosen(config.soft, own.soft),
        confidence=chosen(config.confidence, own.confidence),
        decay=chosen(config.decay, own.decay),
        geometric=own.geometric,
        per_sequence=own.per_sequence if config.mean is None else config.mean == "sequence",
    )


def spread_layers(layers: int, count: int = 5) -> tuple[int, ...]:
    """``count`` outputs spread from layer 1 to the third last, as the published drafts tap them.

    Of 36 layers: 1, 9, 17, 25, 33 (DeepSpec, config/dspark).
    """
    last = max(layers - 3, 1)
    count = min(count, last)
    if count == 1:
        return (1 if layers > 2 else 0,)
    return tuple(sorted({round(1 + (last - 1) * i / (count - 1)) for i in range(count)}))
