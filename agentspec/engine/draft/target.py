"""What a draft must fit: the target that is served. No torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from agentspec.engine.model.config import UNSTRETCHED, Stretch

from .errors import DraftMismatch

if TYPE_CHECKING:
    from agentspec.engine.model.config import ModelConfig

    from .block_config import BlockConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetFacts:
    """The served target. format: its arithmetic ("int8", or of stock torch).

    stretch: of its window, which a draft's layers must follow.
    weights_id, tokenizer_sha256, chat_template_sha256: see ``train/identity.py``; called only where
    a draft names one. None: not known, so that nothing is compared.
    """

    config: ModelConfig
    format: str
    stretch: Stretch = UNSTRETCHED
    weights_id: Callable[[], str] | None = None
    tokenizer_sha256: Callable[[], str] | None = None
    chat_template_sha256: Callable[[], str] | None = None


def check_fit(draft: BlockConfig, target: TargetFacts) -> None:
    """Raise ``DraftMismatch`` naming the first entry in which the draft doesn't fit."""
    mine, served = draft.shape, target.config
    last = served.layers - 1
    if draft.taps[0] < 0 or draft.taps[-1] >= last:
        raise DraftMismatch(
            "target_layer_ids",
            f"{list(draft.taps)} must lie in 0..{last - 1} (the target has {served.layers} layers, "
            "and the last one's output is not for drafts)",
        )
    for name, own, theirs in (
        ("hidden_size", mine.hidden, served.hidden),
        ("vocab_size", mine.vocab, served.vocab),
    ):
        if own != theirs:
            raise DraftMismatch(name, f"{own}, but the target's is {theirs}")
    if not 0 <= draft.mask_token_id < served.vocab:
        raise DraftMismatch("mask_token_id", f"{draft.mask_token_id} is no token of {served.vocab}")
    check_identity(draft.target, target)


def check_identity(said: object, target: TargetFacts) -> None:
    """The same for what a draft says of its target: a mapping, any entry may be missing."""
    if not isinstance(said, dict):
        return
    served: dict[str, Callable[[], object] | None] = {
        "vocab_size": lambda: target.config.vocab,
        "format": lambda: target.format,
        "weights_id": target.weights_id,
        "tokenizer_sha256": target.tokenizer_sha256,
        "chat_template_sha256": target.chat_template_sha256,
    }
    for name, ask in served.items():
        if said.get(name) is None or ask is None:
            continue
        if said[name] != (here := ask()):
            raise DraftMismatch(
                f"target.{name}", f"the draft was trained for {said[name]!r}, not {here!r}"
            )
