"""What a draft is: its method, sizes and target: the ``config.json`` of ``export.py``. No torch.

Read next: ``export.py`` (the layout in words), ``nets/`` (the modules).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from agentspec.engine.model.config import ModelConfig, from_huggingface

from .errors import Mismatch, TrainError

METHODS = ("dspark", "dflash", "jetspec", "eagle3", "mtp")
CHAINS = ("eagle3", "mtp")
MARKOV_HEADS = ("vanilla", "gated", "rnn")
_CLASS = {"eagle3": "Eagle3Model", "mtp": "MtpModel"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSpec:
    """One draft's shape. target: the target's own shape, whose layers the draft copies.

    layers: of the draft. block_size: rows of a block, or steps of a chain (eagle3, mtp).
    target_layer_ids: tapped outputs, ascending. markov_rank 0: no Markov head. causal: rows of a
    block see only themselves and those before. sample_from_anchor: row k proposes anchor + k + 1.
    draft_vocab: tokens that it can propose, a shortlist of its own; None: all of the target's.
    """

    method: str
    target: ModelConfig
    layers: int
    block_size: int
    mask_token_id: int
    target_layer_ids: tuple[int, ...]
    markov_rank: int = 0
    markov_head_type: str = "vanilla"
    confidence_head: bool = False
    confidence_with_markov: bool = True
    sample_from_anchor: bool = True
    causal: bool = False
    draft_vocab: int | None = None

    def __post_init__(self) -> None:
        last = self.target.layers - 1
        taps = self.target_layer_ids
        _require(self.method in METHODS, f"method '{self.method}' is not one of {METHODS}")
        _require(self.layers >= 1, "layers must be 1 or more")
        _require(self.block_size >= 1, "block_size must be 1 or more")
        _require(bool(taps) and list(taps) == sorted(set(taps)), "target_layer_ids must ascend")
        if self.method == "mtp":
            _require(taps == (last,), f"target_layer_ids of mtp must be [{last}]")
        else:
            _require(
                taps[0] >= 0 and taps[-1] < last, f"target_layer_ids must lie in 0..{last - 1}"
            )
        _require(
            0 <= self.mask_token_id < self.target.vocab, "mask_token_id lies outside the vocabulary"
        )
        _require(
            0 < self.logit_rows <= self.target.vocab, "its vocabulary is larger than the target's"
        )
        _require(
            self.markov_head_type in MARKOV_HEADS,
            f"markov_head_type must be one of {MARKOV_HEADS}",
        )
        if self.method in CHAINS:
            _require(self.layers == 1, f"{self.method} has one layer")
            plain = not self.markov_rank and not self.confidence_head and self.sample_from_anchor
            _require(plain, f"{self.method} has no Markov head and no confidence head")
        _require(
            self.sample_from_anchor or self.block_size > 1, "a block of one row proposes nothing"
        )

    @property
    def chain(self) -> bool:
        return self.method in CHAINS

    @property
    def proposals(self) -> int:
        """Tokens of one proposal."""
        return self.block_size if self.sample_from_anchor else self.block_size - 1

    @property
    def logit_rows(self) -> int:
        """Tokens that have a logit."""
        return self.target.vocab if self.draft_vocab is None else self.draft_vocab

    @property
    def qk_norm(self) -> bool:
        """Whether q and k are normed per head, as qwen3's are."""
        return self.target.architecture.startswith("qwen3")

    def to_config(self) -> dict[str, Any]:
        """The entries of ``config.json`` but ``agentspec``."""
        family = "Qwen3" if self.qk_norm else "Llama"
        target = self.target
        config: dict[str, Any] = {
            "architectures": [family + _CLASS.get(self.method, "DSparkModel")],
            "model_type": target.architecture,
            "num_hidden_layers": self.layers,
            "num_target_layers": target.layers,
            "hidden_size": target.hidden,
            "intermediate_size": target.ffn,
            "num_attention_heads": target.heads,
            "num_key_value_heads": target.kv_heads,
            "head_dim": target.head_dim,
            "vocab_size": target.vocab,
            "max_position_embeddings": target.context_tokens,
            "rope_theta": target.rope_theta,
            "rope_parameters": {"rope_type": "default", "rope_theta": target.rope_theta},
            "rms_norm_eps": target.norm_eps,
            "hidden_act": "silu",
            "attention_bias": False,
            "layer_types": ["full_attention"] * self.layers,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "block_size": self.block_size,
            "mask_token_id": self.mask_token_id,
            "target_layer_ids": list(self.target_layer_ids),
            "markov_rank": self.markov_rank,
            "markov_head_type": self.markov_head_type,
            "enable_confidence_head": self.confidence_head,
            "confidence_head_with_markov": self.confidence_with_markov,
            "sample_from_anchor": self.sample_from_anchor,
            "causal": self.causal,
        }
        if self.draft_vocab is not None:
            config["draft_vocab_size"] = self.draft_vocab
        if self.method == "eagle3":
            config |= {"ttt_length": self.block_size, "draft_num_hidden_layers": 1}
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> DraftSpec:
        """The spec of a ``config.json`` that ``to_config`` made. Raises ``TrainError``."""
        try:
            method = config["agentspec"]["method"]
            shape = from_huggingface(config)
            return cls(
                method=method,
                target=replace(shape, layers=int(config["num_target_layers"])),
                layers=int(config["num_hidden_layers"]),
                block_size=int(config["block_size"]),
                mask_token_id=int(config["mask_token_id"]),
                target_layer_ids=tuple(config["target_layer_ids"]),
                markov_rank=int(config["markov_rank"]),
                markov_head_type=config["markov_head_type"],
                confidence_head=bool(config["enable_confidence_head"]),
                confidence_with_markov=bool(config["confidence_head_with_markov"]),
                sample_from_anchor=bool(config["sample_from_anchor"]),
                causal=bool(config["causal"]),
                draft_vocab=_shortlist(config),
            )
        except KeyError as error:
            raise TrainError(f"config.json of the draft lacks {error}") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetId:
    """Which target a draft or its data was made for; all but the name must be equal to go together.

    weights_id and the sums: ``identity.py``. format: the arithmetic that gave the features ("int8",
    "torch-bfloat16"): a draft sees those of the format that serves.
    """

    name: str
    weights_id: str
    format: str
    vocab_size: int
    tokenizer_sha256: str
    chat_template_sha256: str

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def require(self, other: Mapping[str, Any], what: str) -> None:
        """Raise ``Mismatch`` naming the first field that differs in ``other``, part of ``what``."""
        for name, mine in self.to_dict().items():
            if name != "name" and other.get(name) != mine:
                raise Mismatch(
                    f"{what} was made for another target: {name} is {other.get(name)!r}, "
                    f"not {mine!r}"
                )


def _shortlist(config: Mapping[str, Any]) -> int | None:
    """speculators writes the size of the whole vocabulary where there is none."""
    size = config.get("draft_vocab_size")
    return None if size in (None, config["vocab_size"]) else int(size)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise TrainError(f"draft: {message}")
