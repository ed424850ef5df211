"""The kinds of the entries of a draft's ``config.json``, in all layouts: a wrong one is named.

What an entry may be, and which must be there, is ``block_config.py``'s and ``step_config.py``'s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from .errors import UnsupportedDraft

Size = Annotated[int, Meta(ge=1, le=2**31 - 1)] | None
Layers = list[Annotated[int, Meta(ge=-(2**15), le=2**15)]] | None
Names = list[str] | None
Number = float | None


class _Calibration(msgspec.Struct):
    temperatures: list[float] | None = None
    masked_temperatures: list[float] | None = None


class _Ours(msgspec.Struct):
    method: str | None = None
    target: dict[str, Any] | None = None
    calibration: _Calibration | None = None


class _Proposing(msgspec.Struct):
    speculative_tokens: Size = None


class _Speculators(msgspec.Struct):
    proposal_methods: list[_Proposing] | None = None


class _Said(msgspec.Struct):
    """Whatever else an exporter writes is not looked at."""

    architectures: Names = None
    model_type: str | None = None
    layer_types: Names = None
    num_hidden_layers: Size = None
    hidden_size: Size = None
    intermediate_size: Size = None
    num_attention_heads: Size = None
    num_key_value_heads: Size = None
    head_dim: Size = None
    vocab_size: Size = None
    max_position_embeddings: Size = None
    draft_vocab_size: Size = None
    target_hidden_size: Size = None
    ttt_length: Size = None
    block_size: int | None = None
    mask_token_id: int | None = None
    markov_rank: Annotated[int, Meta(ge=0, le=1024)] | None = None
    markov_head_type: str | None = None
    rope_theta: Number = None
    rms_norm_eps: Number = None
    partial_rotary_factor: Number = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    target_layer_ids: Layers = None
    aux_hidden_state_layer_ids: Layers = None
    eagle_aux_hidden_state_layer_ids: Layers = None
    speculators_model_type: str | None = None
    speculators_config: _Speculators | None = None
    transformer_layer_config: _Said | None = None
    dflash_config: _Said | None = None
    eagle_config: _Said | None = None
    agentspec: _Ours | None = None


def check_kinds(raw: Mapping[str, Any]) -> None:
    """Raise ``UnsupportedDraft`` naming the first entry of a wrong kind."""
    try:
        msgspec.convert(raw, _Said)
    except msgspec.ValidationError as error:
        raise UnsupportedDraft(f"config.json of the draft: {error}") from None
