"""A trained draft on disk: ``config.json`` + ``model.safetensors``, and what it has to mean.

Legend: E hidden size, A tapped layers, H heads, J K/V heads, D head size, F feed-forward size,
V vocabulary, r Markov rank, B block size, x_t token at position t, f_t features of position t.

Common to the five methods (DeepSpec's layout, github.com/deepseek-ai/DeepSpec, modeling/dspark):

* ``config.json`` is the target's config with ``architectures``, ``num_hidden_layers`` (of the
  draft), ``num_target_layers``, ``block_size``, ``mask_token_id``, ``target_layer_ids`` (outputs of
  decoder layers counted from 0, ascending), ``markov_rank`` (0: none), ``markov_head_type``
  (vanilla, gated, rnn), ``enable_confidence_head``, ``confidence_head_with_markov``,
  ``sample_from_anchor``, ``causal``, ``tie_word_embeddings`` false, and one object ``agentspec``:
  ``method``, ``target`` {name, weights_id, format, vocab_size, tokenizer_sha256,
  chat_template_sha256}, ``calibration`` {temperatures, masked_temperatures} (absent before
  ``draft calibrate``), ``trained_tokens``.
* Weights are bf16; or, exported with int8, every matrix ``N`` is stored as I8 ``N`` beside F32
  ``N_scale`` [rows]: weight = code * scale of its row. Vectors and ``confidence_head.*`` stay
  bf16. ``embed_tokens.weight`` and ``lm_head.weight`` [V, E] are the target's and absent unless
  asked for.
* A layer has the target's geometry (rope, heads, eps): ``layers.N.self_attn.{q,k,v,o}_proj.weight``
  ``layers.N.mlp.{gate,up,down}_proj.weight``, ``layers.N.{input,post_attention}_layernorm.weight``;
  of a qwen3 target also ``layers.N.self_attn.{q,k}_norm.weight`` [D].
* *Anchor*: the last committed token, at position t; its own features don't exist yet, those of all
  positions before t do. Every method proposes x_{t+1}, x_{t+2}, ...

``dspark``, ``dflash``, ``jetspec`` ([Llama|Qwen3]DSparkModel): ``fc.weight`` [E, A*E] (columns by
ascending layer id), ``hidden_norm.weight``, ``norm.weight`` [E].
  context: c_i = hidden_norm(fc f_i) for i < t; every layer takes K and V of c_i at position i with
  its own k_proj, v_proj (k_norm, rope), without input_layernorm; c_i is the same for every layer.
  block: B rows, [emb(x_t), emb(mask) * (B-1)], at positions t .. t+B-1, through the layers; a row
  attends to all context rows and to its block: all of it, or with ``causal`` itself and the rows
  before. h_k = norm(row k). base logits U_k = lm_head h_k.
  ``sample_from_anchor``: row k proposes x_{t+1+k}, B tokens in all (dspark, jetspec); else row k
  proposes its own position x_{t+k} and row 0 is unused, B-1 tokens (dflash).
  ``markov_head.markov_w1.weight`` [V, r], ``markov_head.markov_w2.weight`` [V, r]: with p the token
  before the proposed one, e = w1[p]: vanilla: logits = U + w2 e; gated: U + w2 (sigmoid(gate_proj
  [h; e]) * e), ``markov_head.gate_proj.{weight [r, E+r], bias}``; rnn: (g, c, o) = joint_proj
  [s; e; h], s' = sig(g) s + (1 - sig(g)) tanh(c), U + w2 tanh(o), s before row 0 is 0,
  ``markov_head.joint_proj.{weight [3r, 2r+E], bias}``.
  ``confidence_head.proj.{weight [1, E+r or E], bias [1]}``: logit of P(accepted | those before
  accepted) = proj [h; e] (``confidence_head_with_markov``) or proj h. Calibrated:
  sigmoid(logit / temperatures[k]); ``masked_temperatures`` where a grammar masks the row.

``eagle3`` ([Llama|Qwen3]Eagle3Model; one layer; B = ``ttt_length`` proposals): ``fc.weight``,
``norm.weight``, ``layers.0.hidden_norm.weight`` [E]; q, k, v_proj take 2E inputs. Row i pairs
hidden g_i with token x_{i+1} at rope position i and proposes x_{i+2}; the anchor's row is i = t-1.
  g_i = fc f_i. n_i = [input_layernorm(emb x_{i+1}) ; hidden_norm(g_i)]; y_i = g_i + attention(n_i);
  o_i = y_i + mlp(post_attention_layernorm(y_i)); logits = lm_head norm(o_i).
  Rows i < t-1 give only K and V. Step j = 1.. feeds hidden o of step j-1 (not normed) with the
  token proposed there, at rope position t-1+j, seeing the rows i <= t-1 of true features and the
  steps before it. After a verification the steps' K and V are dropped, true features take over.

``mtp`` ([Llama|Qwen3]MtpModel; after DeepSeek-V3, arXiv 2412.19437 section 2.2; one layer):
``enorm.weight``, ``hnorm.weight``, ``norm.weight`` [E], ``eh_proj.weight`` [E, 2E], ``layers.0.*``
(a plain decoder layer). ``target_layer_ids`` is [last layer], and f_i is that layer's output
*through the target's own final norm*. Rows and steps are eagle3's: row i pairs f_i with x_{i+1} at
rope position i: z_i = eh_proj [enorm(emb x_{i+1}) ; hnorm(f_i)], o_i = layer(z_i), logits = lm_head
norm(o_i); step j feeds norm(o) of step j-1 in the place of f.

speculators' layout (github.com/vllm-project/speculators; ``draft export --layout speculators``):
the same tensors; config keys ``speculators_model_type``, ``speculators_config``,
``transformer_layer_config``, and ``aux_hidden_state_layer_ids`` = layer id + 1. For eagle3, dspark
and dflash only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from .errors import TrainError
from .nets import DraftNet, build_net
from .samples import read_json, write_json
from .spec import DraftSpec, TargetId
from .target import Tables

WEIGHTS, CONFIG, SCALE = "model.safetensors", "config.json", "_scale"


@dataclass(slots=True)
class Draft:
    """A draft as it lies on disk. tensors: by name, of any float dtype. about: the object
    ``agentspec`` of its config."""

    spec: DraftSpec
    tensors: dict[str, Tensor]
    about: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, net: DraftNet, target: TargetId, trained_tokens: int) -> Draft:
        """A copy of the net's weights in bf16."""
        tensors = {
            name: (value.bfloat16() if value.is_floating_point() else value).cpu().contiguous()
            for name, value in net.state_dict().items()
        }
        about = {
            "method": net.spec.method,
            "target": target.to_dict(),
            "trained_tokens": trained_tokens,
        }
        return cls(net.spec, tensors, about)

    def net(self) -> DraftNet:
        """The module with these weights, float32. Raises ``TrainError`` naming a tensor."""
        net = build_net(self.spec)
        own = net.state_dict()
        for name in (*own.keys() - self.tensors.keys(), *self.tensors.keys() - own.keys()):
            if name not in ("embed_tokens.weight", "lm_head.weight", "t2d"):
                raise TrainError(f"the draft's tensor {name} is missing or too much")
        for name, weight in own.items():
            found = self.tensors[name]
            if found.shape != weight.shape:
                raise TrainError(
                    f"the draft's tensor {name} is {list(found.shape)}, not {list(weight.shape)}"
                )
        net.load_state_dict({name: self.tensors[name].to(own[name].dtype) for name in own})
        return net


def write_deepspec(
    folder: Path, draft: Draft, *, int8: bool = False, tables: Tables | None = None
) -> int:
    """Write DeepSpec's layout. tables: the target's, to lie beside. Returns bytes of weights."""
    config = draft.spec.to_config() | {"agentspec": draft.about}
    return _write(folder, config, _stored(draft.tensors, int8=int8, tables=tables))


def write_speculators(folder: Path, draft: Draft, head: Tensor | None = None) -> int:
    """Write speculators' layout, bf16. head [V, E]: the target's lm_head, of which a draft with a
    shortlist needs its rows. Raises ``TrainError`` for a method that it doesn't know."""
    spec = draft.spec
    names = {"dspark": "DSparkDraftModel", "dflash": "DFlashDraftModel", "eagle3": "Eagle3Model"}
    if spec.method not in names:
        raise TrainError(f"speculators' layout has no place for {spec.method}")
    own = spec.to_config()
    shape = {key: own[key] for key in _SHAPE}
    config = {
        "architectures": [names[spec.method]],
        "speculators_model_type": spec.method,
        "speculators_version": "0.7.0",
        "speculators_config": {
            "algorithm": spec.method,
            "proposal_methods": [{"proposal_type": "greedy", "speculative_tokens": spec.proposals}],
            "default_proposal_method": "greedy",
            "verifier": {
                "name_or_path": draft.about["target"]["name"],
                "architectures": [own["architectures"][0].split("DSpark")[0] + "ForCausalLM"],
            },
        },
        "transformer_layer_config": shape,
        "draft_vocab_size": spec.logit_rows,
        "target_hidden_size": spec.target.hidden,
        "num_target_layers": spec.target.layers,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in spec.target_layer_ids],
        "agentspec": draft.about,
    }
    config |= {key: own[key] for key in _EXTRAS if key in own}
    stored = _stored(draft.tensors, int8=False, tables=None)
    if spec.draft_vocab is not None:
        assert head is not None
        ids = torch.arange(spec.draft_vocab) + draft.tensors["d2t"]
        known = torch.zeros(spec.target.vocab, dtype=torch.bool)
        known[ids] = True
        stored |= {"lm_head.weight": head[ids].bfloat16().contiguous(), "t2d": known}
    return _write(folder, config, stored)


_SHAPE = (
    *("model_type", "num_hidden_layers", "hidden_size", "intermediate_size"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "vocab_size", "hidden_act"),
    *("max_position_embeddings", "rope_theta", "rope_parameters", "rms_norm_eps"),
    *("attention_bias", "layer_types", "tie_word_embeddings"),
)
_EXTRAS = (
    *("block_size", "mask_token_id", "markov_rank", "markov_head_type", "enable_confidence_head"),
    *("confidence_head_with_markov", "sample_from_anchor", "causal", "ttt_length"),
)


def read_draft(folder: Path) -> Draft:
    """A draft in either layout, int8 dequantised. Raises ``TrainError``."""
    config = read_json(folder / CONFIG)
    if "speculators_model_type" in config:
        taps = [layer - 1 for layer in config["aux_hidden_state_layer_ids"]]
        config = {**config["transformer_layer_config"], **config, "target_layer_ids": taps}
    if "agentspec" not in config:
        raise TrainError(f"{folder / CONFIG}: no object 'agentspec': it wasn't trained here")
    try:
        stored = load_file(folder / WEIGHTS)
    except (OSError, SafetensorError) as error:
        raise TrainError(f"{folder / WEIGHTS} cannot be read: {error}") from None
    tensors = {
        name: value.float() * stored[name + SCALE][:, None] if name + SCALE in stored else value
        for name, value in stored.items()
        if not name.endswith(SCALE)
    }
    return Draft(DraftSpec.from_config(config), tensors, config["agentspec"])


def amend(folder: Path, **about: Any) -> None:
    """Set entries of the object ``agentspec`` of a written draft."""
    config = read_json(folder / CONFIG)
    config["agentspec"] |= about
    write_json(folder / CONFIG, config)


def quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """weight [N, K] -> codes [N, K] int8 and scales [N] float32; a row of zeros has scale 0."""
    wide = weight.float()
    scale = wide.abs().amax(1) / 127
    codes = wide / torch.where(scale > 0, scale, 1.0)[:, None]
    return codes.round().clamp(-127, 127).to(torch.int8), scale


def _stored(
    tensors: Mapping[str, Tensor], *, int8: bool, tables: Tables | None
) -> dict[str, Tensor]:
    """What goes into the file: bf16, or codes and scales of the matrices."""
    found: dict[str, Tensor] = {}
    for name, value in tensors.items():
        if int8 and value.dim() == 2 and not name.startswith("confidence_head."):
            found[name], found[name + SCALE] = quantized(value)
        else:
            found[name] = value.bfloat16() if value.is_floating_point() else value
    if tables is not None:
        found["embed_tokens.weight"] = tables.embedding.bfloat16()
        found["lm_head.weight"] = tables.head.bfloat16().clone()
    return {name: value.contiguous() for name, value in found.items()}


def _write(folder: Path, config: Mapping[str, Any], tensors: dict[str, Tensor]) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    draft = folder / (WEIGHTS + ".part")
    save_file(tensors, draft, metadata={"format": "pt"})
    draft.chmod(0o644)  # safetensors writes for the owner alone.
    draft.replace(folder / WEIGHTS)
    (folder / CONFIG).write_text(json.dumps(config, indent=1) + "\n")
    return (folder / WEIGHTS).stat().st_size
