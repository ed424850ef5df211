"""Checkpoints on disk against the tensors that were written, and what is said of bad ones."""

from __future__ import annotations

import struct
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from torch import Tensor

from agentspec.engine.model import load_model
from agentspec.engine.model.errors import ModelError, UnsupportedModel, WeightsError
from agentspec.engine.model.gguf_header import GgufFile
from agentspec.engine.model.llama import Llama
from agentspec.engine.model.weights import open_checkpoint
from tests.engine.model.tiny import Shape, converted, random_weights, write_folder, write_gguf

SHAPE = Shape()


def dequantised_q8_0(weight: np.ndarray) -> np.ndarray:
    """Q8_0: blocks of 32 with one float16 scale, max |w| / 127."""
    blocks = weight.reshape(-1, 32)
    scale = np.abs(blocks).max(1, keepdims=True) / 127
    inverse = np.divide(1, scale, out=np.zeros_like(scale), where=scale != 0)
    whole = np.trunc(blocks * inverse + np.copysign(0.5, blocks * inverse))
    return (whole * scale.astype(np.float16).astype(np.float32)).reshape(weight.shape)


def dequantised_q4_1(weight: np.ndarray) -> np.ndarray:
    """Q4_1: blocks of 32 with a float16 minimum and a float16 step, 16 steps."""
    blocks = weight.reshape(-1, 32)
    low, high = blocks.min(1, keepdims=True), blocks.max(1, keepdims=True)
    step = (high - low) / np.float32(15)
    steps = np.clip(np.trunc((blocks - low) / step + np.float32(0.5)), 0, 15)
    half = [x.astype(np.float16).astype(np.float32) for x in (step, low)]
    return (steps * half[0] + half[1]).reshape(weight.shape)


def same(found: dict[str, Tensor], truth: dict[str, Tensor], tolerance: float = 0.0) -> None:
    assert found.keys() == truth.keys()
    for name, weight in truth.items():
        torch.testing.assert_close(found[name], weight, rtol=0, atol=tolerance, msg=name)


def loaded(path: Path, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    model = load_model(path, dtype=dtype)
    assert isinstance(model, Llama)
    return model.targets()


@pytest.mark.parametrize("tied", (True, False))
@pytest.mark.parametrize("shards", (1, 3))
def test_safetensors(tmp_path: Path, tied: bool, shards: int) -> None:
    shape = Shape(tied=tied)
    weights = random_weights(shape)
    same(loaded(write_folder(tmp_path / "m", shape, weights, shards)), weights)


@pytest.mark.parametrize("tied", (True, False))
def test_gguf_with_float32_weights(tmp_path: Path, tied: bool) -> None:
    shape = Shape(tied=tied)
    weights = random_weights(shape)
    same(loaded(write_gguf(tmp_path / "m.gguf", shape, weights)), weights)


@pytest.mark.parametrize(
    ("kind", "dequantised"),
    (
        (gguf.GGMLQuantizationType.Q8_0, dequantised_q8_0),
        (gguf.GGMLQuantizationType.Q4_1, dequantised_q4_1),
    ),
)
def test_gguf_with_quantised_weights(tmp_path: Path, kind, dequantised) -> None:
    """q and k are quantised in their permuted order, row by row, so blocks are the same."""
    weights = random_weights(SHAPE)
    found = loaded(write_gguf(tmp_path / "m.gguf", SHAPE, weights, kind))
    truth = {
        name: torch.from_numpy(dequantised(w.numpy())) if w.ndim > 1 else w
        for name, w in weights.items()
    }
    same(found, truth, tolerance=1e-6)


def test_permuted_rows_differ_from_plain_ones() -> None:
    """Guards the two tests above: were the permutation the identity, they would show nothing."""
    weight = random_weights(SHAPE)["model.layers.0.self_attn.q_proj.weight"].numpy()
    assert not np.array_equal(converted(weight, SHAPE.heads), weight)


@pytest.mark.parametrize("dtype", (torch.bfloat16, torch.float32, torch.float64))
def test_weights_are_rounded_to_the_asked_dtype(tmp_path: Path, dtype: torch.dtype) -> None:
    weights = random_weights(SHAPE)
    found = loaded(write_folder(tmp_path / "m", SHAPE, weights), dtype)
    same(found, {name: weight.to(dtype) for name, weight in weights.items()})


def test_the_shape_is_read_from_either_kind_of_checkpoint(tmp_path: Path) -> None:
    weights = random_weights(SHAPE)
    configs = [
        open_checkpoint(write_folder(tmp_path / "m", SHAPE, weights)).config,
        open_checkpoint(write_gguf(tmp_path / "m.gguf", SHAPE, weights)).config,
    ]
    for config in configs:
        assert config.architecture == "llama"
        assert (config.layers, config.hidden, config.ffn) == (3, 64, 96)
        assert (config.heads, config.kv_heads, config.head_dim) == (6, 2, 16)
        assert (config.vocab, config.context_tokens, config.tied) == (80, 96, True)
        assert config.rope_theta == 5000.0
        assert config.norm_eps == pytest.approx(1e-5)


def test_weights_are_nan_until_they_are_loaded(tmp_path: Path) -> None:
    config = open_checkpoint(write_folder(tmp_path / "m", SHAPE, random_weights(SHAPE))).config
    model = Llama(config, dtype=torch.float32)
    assert all(weight.isnan().all() for weight in model.targets().values())


def test_a_missing_tensor_is_named(tmp_path: Path) -> None:
    weights = random_weights(SHAPE)
    del weights["model.layers.1.mlp.up_proj.weight"]
    with pytest.raises(WeightsError, match=r"missing tensor model\.layers\.1\.mlp\.up_proj"):
        loaded(write_folder(tmp_path / "m", SHAPE, weights))


def test_a_missing_head_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", SHAPE, random_weights(SHAPE), tie_word_embeddings=False)
    with pytest.raises(WeightsError, match="missing tensor lm_head.weight"):
        loaded(folder)


@pytest.mark.parametrize("name", ("model.layers.3.mlp.up_proj.weight", "lm_head.bias"))
def test_an_unexpected_tensor_is_named(tmp_path: Path, name: str) -> None:
    weights = random_weights(SHAPE) | {name: torch.zeros(2)}
    with pytest.raises(WeightsError, match=f"unexpected tensor {name}"):
        loaded(write_folder(tmp_path / "m", SHAPE, weights))


def test_an_unexpected_tensor_of_a_gguf_is_named(tmp_path: Path) -> None:
    weights = random_weights(SHAPE)
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", "llama")
    writer.add_tensor("rope_freqs.weight", weights["model.norm.weight"].numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(UnsupportedModel, match="unexpected tensor rope_freqs.weight"):
        loaded(tmp_path / "m.gguf")


def test_a_wrong_shape_is_named(tmp_path: Path) -> None:
    weights = random_weights(SHAPE)
    weights["model.norm.weight"] = torch.ones(SHAPE.hidden + 1)
    with pytest.raises(WeightsError, match=r"model\.norm\.weight is \[65\].*needs \[64\]"):
        loaded(write_folder(tmp_path / "m", SHAPE, weights))


def test_what_a_tied_model_repeats_is_left_out(tmp_path: Path) -> None:
    weights = random_weights(SHAPE)
    repeated = {"lm_head.weight": weights["model.embed_tokens.weight"].clone()}
    repeated["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(8)
    same(loaded(write_folder(tmp_path / "m", SHAPE, weights | repeated)), weights)


@pytest.mark.parametrize(
    ("config", "message"),
    (
        ({"model_type": "mamba"}, "architecture 'mamba' is not supported"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope scaling 'llama3'"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling 'yarn'"),
        ({"attention_bias": True}, "attention_bias"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"num_key_value_heads": 4}, "6 attention heads cannot share 4"),
    ),
)
def test_what_is_not_known_is_refused(tmp_path: Path, config: dict, message: str) -> None:
    folder = write_folder(tmp_path / "m", SHAPE, random_weights(SHAPE), **config)
    with pytest.raises(UnsupportedModel, match=message):
        loaded(folder)


def test_gguf_rope_scaling_is_refused(tmp_path: Path) -> None:
    path = write_gguf(
        tmp_path / "m.gguf", SHAPE, random_weights(SHAPE), llama__rope__scaling__type="yarn"
    )
    with pytest.raises(UnsupportedModel, match="rope scaling 'yarn'"):
        loaded(path)


@pytest.mark.parametrize("keep", (0, 3, 4, 30, 400, 20_000))
def test_a_torn_gguf_is_refused(tmp_path: Path, keep: int) -> None:
    whole = write_gguf(tmp_path / "m.gguf", SHAPE, random_weights(SHAPE))
    torn = tmp_path / "torn.gguf"
    torn.write_bytes(whole.read_bytes()[:keep])
    with pytest.raises(WeightsError, match="torn.gguf"):
        loaded(torn)


@pytest.mark.parametrize("length", (2, 3, 2**63))
def test_a_header_that_promises_more_strings_than_it_has_is_refused(
    tmp_path: Path, length: int
) -> None:
    path = tmp_path / "m.gguf"
    array = struct.pack("<Q1sIIQQ", 1, b"a", 9, 8, 2**40, length) + b"xy"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + array)
    with pytest.raises(WeightsError, match="the file ends inside its header"):
        GgufFile(path)


def test_a_torn_folder_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", SHAPE, random_weights(SHAPE))
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(WeightsError, match="model.safetensors cannot be read"):
        loaded(folder)


def test_an_index_cannot_reach_outside_its_folder(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "m", SHAPE, random_weights(SHAPE), shards=2)
    index = folder / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00001", "../model-00001"))
    with pytest.raises(WeightsError, match="outside its folder"):
        loaded(folder)


def test_errors_of_a_model_are_one_family() -> None:
    assert issubclass(WeightsError, ModelError)
    assert issubclass(UnsupportedModel, ModelError)
