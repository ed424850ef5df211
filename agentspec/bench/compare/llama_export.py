"""A trained draft as llama.cpp reads it: one GGUF file for ``--spec-draft-model``.

Layouts as in ``src/models/eagle3.cpp`` and ``dflash.cpp`` of llama.cpp (in llama-cpp-python
0.3.36): taps are counted by layer inputs, so one higher than ours; EAGLE-3 turns pairs of
neighbours, so rows of q and k are interleaved; embeddings, lm_head and tokenizer are the target's.
Legend: H heads, D head size.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFWriter

from agentspec.engine.draft.block_config import BlockConfig, block_config
from agentspec.engine.draft.draft_file import DraftFile, read_config
from agentspec.engine.draft.errors import UnsupportedDraft
from agentspec.engine.draft.step_config import StepConfig, is_step_draft, step_config
from agentspec.engine.model.gguf_header import GgufFile

if TYPE_CHECKING:
    from agentspec.engine.model.config import ModelConfig

_TAPS = 3
_LAYER = {
    "input_layernorm": "attn_norm",
    "hidden_norm": "attn_norm_2",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
_TOP = {
    "fc": "fc",
    "norm": "output_norm",
    "hidden_norm": "enc.output_norm",
    "markov_head.markov_w1": "markov_w1",
    "markov_head.markov_w2": "markov_w2",
    "confidence_head.proj": "conf_proj",
}


def export(folder: Path, target: Path, out: Path) -> str:
    """Write ``out``; returns the ``--spec-type`` that serves it. target: the model's GGUF file.

    Raises ``UnsupportedDraft`` with what llama.cpp has no place for, and what reading raises.
    """
    raw = read_config(folder)
    config = step_config(raw) if is_step_draft(raw) else block_config(raw)
    kind, arch = _kind(config)
    file = DraftFile(folder)
    writer = GGUFWriter(str(out), arch)
    _shape(writer, arch, config.shape, layers=1 if arch == "eagle3" else config.shape.layers)
    assert config.taps is not None
    writer.add_array(f"{arch}.target_layers", [tap + 1 for tap in config.taps])
    if isinstance(config, BlockConfig):
        writer.add_uint32(f"{arch}.block_size", config.block_size)
        writer.add_mask_token_id(config.mask_token_id)
    else:
        writer.add_uint32(f"{arch}.target_hidden_size", config.shape.hidden)
        writer.add_bool(f"{arch}.norm_before_residual", config.norm_first)
    _tokenizer(writer, target)
    for name in sorted(file.names):
        for stored, tensor in _tensor(name, file, config.shape, interleaved=arch == "eagle3"):
            writer.add_tensor(stored, np.ascontiguousarray(tensor))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return kind


def _kind(config: StepConfig | BlockConfig) -> tuple[str, str]:
    """(--spec-type, architecture)."""
    method = config.method
    if config.draft_vocab is not None:
        raise UnsupportedDraft("a draft with a vocabulary of its own is not exported")
    if method == "eagle3":
        if config.qk_norm:
            raise UnsupportedDraft("llama.cpp's eagle3 has no norms on queries and keys")
        if config.taps is None or len(config.taps) != _TAPS:
            raise UnsupportedDraft(f"llama.cpp's eagle3 takes exactly {_TAPS} tapped layers")
        return "draft-eagle3", "eagle3"
    if method in ("dflash", "dspark"):
        if not config.qk_norm:
            raise UnsupportedDraft(
                "llama.cpp's dflash layers (DSpark's too) norm queries and keys, this draft's don't"
            )
        return f"draft-{method}", "dflash"
    raise UnsupportedDraft(f"llama.cpp has no layout for a draft of method '{method}'")


def _shape(writer: GGUFWriter, arch: str, shape: ModelConfig, layers: int) -> None:
    for name, value in (
        ("block_count", layers),
        ("context_length", shape.context_tokens),
        ("embedding_length", shape.hidden),
        ("feed_forward_length", shape.ffn),
        ("attention.head_count", shape.heads),
        ("attention.head_count_kv", shape.kv_heads),
        ("attention.key_length", shape.head_dim),
        ("attention.value_length", shape.head_dim),
        ("rope.dimension_count", shape.head_dim),
        ("vocab_size", shape.vocab),
    ):
        writer.add_uint32(f"{arch}.{name}", value)
    writer.add_float32(f"{arch}.rope.freq_base", shape.rope_theta)
    writer.add_float32(f"{arch}.attention.layer_norm_rms_epsilon", shape.norm_eps)


def _tokenizer(writer: GGUFWriter, target: Path) -> None:
    """The target's, which every GGUF file must hold."""
    for name, value in GgufFile(target).fields.items():
        if not name.startswith("tokenizer.ggml.") or name == "tokenizer.ggml.mask_token_id":
            continue
        if isinstance(value, list):
            writer.add_array(name, value)
        elif isinstance(value, bool):
            writer.add_bool(name, value)
        elif isinstance(value, int):
            writer.add_uint32(name, value)
        elif isinstance(value, str):
            writer.add_string(name, value)


def _tensor(
    name: str, file: DraftFile, shape: ModelConfig, *, interleaved: bool
) -> list[tuple[str, npt.NDArray]]:
    """[(llama.cpp's name, tensor)] of one of ours; [] of a scale or what is the target's."""
    if name.endswith("_scale") or name.startswith(("embed_tokens", "lm_head")):
        return []
    stem, dot, part = name.rpartition(".")
    tensor = file.dense(name, *file.shape(name))
    where = _TOP.get(stem)
    if stem.startswith("layers."):
        number, _, own = stem.removeprefix("layers.").partition(".")
        where = f"blk.{number}.{_LAYER[own]}" if own in _LAYER else None
        if interleaved and own in ("self_attn.q_proj", "self_attn.k_proj"):
            heads = shape.heads if own.endswith("q_proj") else shape.kv_heads
            tensor = interleave(tensor, heads)
    if where is None:
        raise UnsupportedDraft(f"llama.cpp has no place for the tensor {name}")
    small = tensor.ndim == 1 or where == "conf_proj"
    return [(f"{where}{dot}{part}", tensor.astype(np.float32 if small else np.float16))]


def interleave(weight: npt.NDArray, heads: int) -> npt.NDArray:
    """weight [H*D, K], a head's halves turned together -> its neighbours turned together."""
    rows: Any = weight.reshape(heads, 2, -1, weight.shape[1])
    return rows.swapaxes(1, 2).reshape(weight.shape)
