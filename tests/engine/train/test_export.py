"""A draft written and read again: both layouts, both formats, and what is refused."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from agentspec.engine.train.errors import Mismatch, TrainError
from agentspec.engine.train.export import (
    Draft,
    amend,
    quantized,
    read_draft,
    write_deepspec,
    write_speculators,
)
from agentspec.engine.train.nets import build_net
from agentspec.engine.train.spec import DraftSpec, TargetId
from agentspec.engine.train.target import Tables
from tests.engine.train.worlds import TARGET, spec, tables

ID = TargetId(
    name="tiny",
    weights_id="w",
    format="int8",
    vocab_size=TARGET.vocab,
    tokenizer_sha256="t",
    chat_template_sha256="c",
)
METHODS = ("dspark", "dflash", "jetspec", "eagle3", "mtp")


def draft(one: DraftSpec) -> Draft:
    torch.manual_seed(2)
    return Draft.of(build_net(one), ID, 123)


def stored(folder: Path) -> dict[str, tuple[str, list[int]]]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        found = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {name: (one.get_dtype(), one.get_shape()) for name, one in found.items()}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
def test_deepspec_layout_round_trips(tmp_path: Path, method: str, architecture: str):
    made = draft(spec(method, architecture))
    write_deepspec(tmp_path, made)
    back = read_draft(tmp_path)
    assert back.spec == made.spec
    assert back.about == {"method": method, "target": ID.to_dict(), "trained_tokens": 123}
    assert back.tensors.keys() == made.tensors.keys()
    for name, value in back.net().state_dict().items():
        torch.testing.assert_close(value, made.tensors[name].float(), rtol=0, atol=0)
    # The length of the header is a multiple of eight, so tensors may be mapped as they lie.
    assert all(kind == "BF16" for kind, _ in stored(tmp_path).values())


def test_names_and_shapes_are_deepspecs(tmp_path: Path):
    """research: DeepSpec's table of tensors; E = 12, taps 3, q 16, kv 8, F = 20, V = 23, r = 5."""
    write_deepspec(tmp_path, draft(spec("dspark", "qwen3", markov_head_type="gated")))
    layer = {
        "self_attn.q_proj": [16, 12], "self_attn.k_proj": [8, 12], "self_attn.v_proj": [8, 12],
        "self_attn.o_proj": [12, 16], "self_attn.q_norm": [4], "self_attn.k_norm": [4],
        "mlp.gate_proj": [20, 12], "mlp.up_proj": [20, 12], "mlp.down_proj": [12, 20],
        "input_layernorm": [12], "post_attention_layernorm": [12],
    }  # fmt: skip
    expected = {f"layers.{i}.{name}.weight": shape for i in range(2) for name, shape in
                layer.items()}  # fmt: skip
    expected |= {
        "fc.weight": [12, 36], "hidden_norm.weight": [12], "norm.weight": [12],
        "markov_head.markov_w1.weight": [23, 5], "markov_head.markov_w2.weight": [23, 5],
        "markov_head.gate_proj.weight": [5, 17], "markov_head.gate_proj.bias": [5],
        "confidence_head.proj.weight": [1, 17], "confidence_head.proj.bias": [1],
    }  # fmt: skip
    assert {name: shape for name, (_, shape) in stored(tmp_path).items()} == expected
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["architectures"] == ["Qwen3DSparkModel"]
    assert (config["model_type"], config["num_hidden_layers"]) == ("qwen3", 2)
    assert config["target_layer_ids"] == [0, 2, 4]
    assert config["enable_confidence_head"] and config["confidence_head_with_markov"]


def test_eagle3_takes_two_inputs(tmp_path: Path):
    write_deepspec(tmp_path, draft(spec("eagle3")))
    shapes = {name: shape for name, (_, shape) in stored(tmp_path).items()}
    assert shapes["layers.0.self_attn.q_proj.weight"] == [16, 24]
    assert "layers.0.hidden_norm.weight" in shapes and "hidden_norm.weight" not in shapes
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["architectures"], config["ttt_length"]) == (["LlamaEagle3Model"], 4)


@pytest.mark.parametrize("method", METHODS)
def test_int8_is_within_half_a_step_of_every_row(tmp_path: Path, method: str):
    made = draft(spec(method))
    write_deepspec(tmp_path, made, int8=True)
    kinds = stored(tmp_path)
    back = read_draft(tmp_path)
    for name, value in made.tensors.items():
        matrix = value.dim() == 2 and not name.startswith("confidence_head")
        assert kinds[name][0] == ("I8" if matrix else "BF16")
        if matrix:
            assert kinds[name + "_scale"] == ("F32", [len(value)])
            step = value.float().abs().amax(1, keepdim=True) / 127
            assert ((back.tensors[name] - value.float()).abs() <= step * 0.501).all()


def test_a_row_of_zeros_stays_zero():
    codes, scale = quantized(torch.tensor([[0.0, 0.0], [1.0, -0.5]]))
    assert codes.tolist() == [[0, 0], [127, -64]] and scale[0] == 0


def test_the_targets_tables_lie_beside_it_when_asked_for(tmp_path: Path):
    embedding, head = tables()
    write_deepspec(
        tmp_path, draft(spec("dspark")), tables=Tables(embedding, head, torch.ones(12), 1e-5)
    )
    back = read_draft(tmp_path)
    torch.testing.assert_close(back.tensors["embed_tokens.weight"], embedding.bfloat16())
    torch.testing.assert_close(back.tensors["lm_head.weight"], head.bfloat16())
    assert back.net() is not None


@pytest.mark.parametrize("method", ["dspark", "dflash", "eagle3"])
def test_speculators_layout_round_trips(tmp_path: Path, method: str):
    made = draft(spec(method))
    write_speculators(tmp_path, made)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["speculators_model_type"] == method
    assert config["aux_hidden_state_layer_ids"] == [1, 3, 5]
    assert config["transformer_layer_config"]["num_hidden_layers"] == made.spec.layers
    back = read_draft(tmp_path)
    assert back.spec == made.spec
    for name, value in made.tensors.items():
        torch.testing.assert_close(back.tensors[name], value, rtol=0, atol=0)


def test_speculators_knows_no_mtp(tmp_path: Path):
    with pytest.raises(TrainError, match="no place for mtp"):
        write_speculators(tmp_path, draft(spec("mtp")))


def test_calibration_is_written_into_the_config(tmp_path: Path):
    write_deepspec(tmp_path, draft(spec("dspark")))
    amend(tmp_path, calibration={"temperatures": [1.5], "masked_temperatures": [2.0]})
    about = read_draft(tmp_path).about
    assert about["calibration"]["temperatures"] == [1.5] and about["trained_tokens"] == 123


@pytest.mark.parametrize("field", ["weights_id", "format", "tokenizer_sha256", "vocab_size"])
def test_another_target_is_refused_by_name(field: str):
    other = ID.to_dict() | {field: "other"}
    with pytest.raises(Mismatch, match=f"{field} is 'other'"):
        ID.require(other, "the draft")
    ID.require(ID.to_dict() | {"name": "renamed"}, "the draft")


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"target_layer_ids": (0, 5)}, "target_layer_ids"),
        ({"target_layer_ids": (2, 1)}, "target_layer_ids must ascend"),
        ({"mask_token_id": 23}, "mask_token_id"),
        ({"block_size": 0}, "block_size"),
        ({"markov_head_type": "deep"}, "markov_head_type"),
        ({"method": "eagle3"}, "eagle3 has"),
    ],
)
def test_impossible_shapes_are_refused_by_name(changed: dict, named: str):
    with pytest.raises(TrainError, match=named):
        dataclasses.replace(spec("dspark"), **changed)


def test_a_missing_tensor_is_named(tmp_path: Path):
    made = draft(spec("dspark"))
    del made.tensors["fc.weight"]
    with pytest.raises(TrainError, match="fc.weight"):
        made.net()
    with pytest.raises(TrainError, match="config.json"):
        read_draft(tmp_path)
