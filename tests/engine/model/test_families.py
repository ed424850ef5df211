"""Every family's logits against those of transformers, in one pass, in chunks, over trees."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from agentspec.engine.batch import Span
from agentspec.engine.model.errors import UnsupportedModel, WeightsError
from agentspec.engine.runner import Runner
from agentspec.settings import EngineSettings
from tests.engine.model.families import CONFIGS, ROWS, TOKENS, kept, weights_of, write

TOLERANCE = 3e-5
"""transformers makes its angles in float32, also in a float64 model."""


def load(folder: Path, dtype: str = "fp64") -> Runner:
    options: dict[str, Any] = {"dtype": dtype, "threads": 1, "page_tokens": 4}
    return Runner.load(EngineSettings(kv_tokens=256, context_tokens=128, **options), folder)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("families")
    return {name: write(root / name, c, weights_of(c)) for name, c in CONFIGS.items()}


def logits(runner: Runner, sizes: tuple[int, ...]) -> torch.Tensor:
    """Of ``ROWS``, computed in chunks of these sizes, in pages out of order."""
    pages, start, found = [9, 4, 30, 2, 17, 5, 11, 3], 0, []
    for size in sizes:
        rows = [row - start for row in ROWS if start <= row < start + size]
        span = Span(TOKENS[start : start + size], start, pages, rows)
        found.append(runner.forward([span]).logits)
        start += size
    assert start == len(TOKENS)
    return torch.cat(found)


@pytest.mark.parametrize("sizes", [(24,), (7, 1, 10, 6)])
@pytest.mark.parametrize("name", CONFIGS)
def test_logits_are_those_of_transformers(folders, name: str, sizes: tuple[int, ...]) -> None:
    found = logits(load(folders[name]), sizes)
    torch.testing.assert_close(found, kept(name), rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["qwen3", "qwen3-moe", "gemma3"])
def test_bf16_is_near(folders, name: str) -> None:
    found, truth = logits(load(folders[name], "bf16"), (24,)).double(), kept(name)
    near = torch.cosine_similarity(found, truth)
    # Rounding may send a token to other experts.
    assert near.median() > 0.99 and near.min() > 0.9


@pytest.mark.parametrize("name", ["gemma3", "qwen3-moe", "qwen3-sliding"])
def test_a_tree_of_drafts_equals_its_paths(folders, name: str) -> None:
    runner, pages, tree = load(folders[name]), list(range(8)), (-1, 0, 0, -1, 2)
    runner.forward([Span(TOKENS[:11], 0, pages)])
    drafted = TOKENS[12:17]
    span = Span([TOKENS[11], *drafted], 11, pages, list(range(6)), tree)
    found = runner.forward([span]).logits
    for path in ((0, 1), (0, 2, 4), (3,)):
        text = [*TOKENS[:12], *(drafted[node] for node in path)]
        rows = list(range(12, len(text)))
        truth = runner.forward([Span(text, 0, list(range(20, 28)), rows)]).logits
        torch.testing.assert_close(found[[1 + node for node in path]], truth)


def test_the_newer_spelling_of_rotary_positions_is_read(tmp_path: Path) -> None:
    for name in ("qwen3-yarn", "llama-3.1"):
        config = copy.deepcopy(CONFIGS[name])
        rope = config.pop("rope_scaling") | {"rope_theta": config.pop("rope_theta")}
        folder = write(tmp_path / name, config | {"rope_parameters": rope}, weights_of(config))
        torch.testing.assert_close(logits(load(folder), (24,)), kept(name), rtol=3e-5, atol=3e-5)
    config = copy.deepcopy(CONFIGS["gemma3"])
    full = config.pop("rope_scaling") | {"rope_theta": config.pop("rope_theta")}
    local = {"rope_type": "default", "rope_theta": config.pop("rope_local_base_freq")}
    config["rope_parameters"] = {"full_attention": full, "sliding_attention": local}
    folder = write(tmp_path / "gemma3", config, weights_of(config))
    torch.testing.assert_close(logits(load(folder), (24,)), kept("gemma3"), rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_model_of_a_gemma_with_pictures(tmp_path: Path, prefix: str) -> None:
    text = CONFIGS["gemma3"]
    weights = {prefix + n.removeprefix("model."): w for n, w in weights_of(text).items()}
    weights["vision_tower.vision_model.post_layernorm.weight"] = torch.ones(3)
    folder = write(tmp_path / "m", {"model_type": "gemma3", "text_config": text}, weights)
    torch.testing.assert_close(logits(load(folder), (24,)), kept("gemma3"), rtol=3e-5, atol=3e-5)


def test_yarn_lengthens_the_window(folders) -> None:
    assert load(folders["qwen3-yarn"]).context_tokens == 128
    config = CONFIGS["qwen3-yarn"] | {"max_position_embeddings": 40}
    path = folders["qwen3-yarn"].parent / "short"
    assert load(write(path, config, weights_of(config))).context_tokens == 128


@pytest.mark.parametrize(
    ("name", "change", "message"),
    (
        ("qwen3", {"model_type": "qwen2"}, "architecture 'qwen2' is not supported"),
        ("qwen3", {"attention_bias": True}, "attention_bias"),
        ("qwen3", {"rope_scaling": {"rope_type": "longrope"}}, "rope scaling 'longrope'"),
        ("qwen3", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'yarn' lacks 'orig"),
        ("qwen3", {"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ("qwen3", {"layer_types": ["full_attention", "chunked"] * 2}, "layer_types"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "attn_logit_softcapping"),
        ("gemma3", {"use_bidirectional_attention": True}, "use_bidirectional_attention"),
        ("gemma3", {"hidden_activation": "gelu"}, "hidden_activation 'gelu'"),
        ("qwen3-moe", {"num_experts": None}, "config.json: num_experts"),
        ("llama", {"quantization_config": {"quant_method": "awq"}}, "quantization 'awq'"),
    ),
)
def test_what_is_not_known_is_refused_by_name(
    tmp_path: Path, name: str, change: dict[str, Any], message: str
) -> None:
    folder = write(tmp_path / "m", CONFIGS[name] | change, {"model.norm.weight": torch.ones(2)})
    with pytest.raises(UnsupportedModel, match=message):
        load(folder)


def quantised(weights: dict[str, torch.Tensor], way: str) -> tuple[dict, dict]:
    """The matrices of the layers in e4m3 with scales, and what they then stand for."""
    stored, meant = {}, {}
    for name, weight in weights.items():
        stored[name] = meant[name] = weight
        if weight.ndim < 2 or "layers" not in name or "mlp.gate.weight" in name:
            continue
        rows, columns = weight.shape
        high, wide = {"block": (32, 20), "row": (1, columns), "tensor": (rows, columns)}[way]
        spread = torch.ones_like(weight)
        scales = torch.zeros(-(-rows // high), -(-columns // wide))
        for i in range(scales.shape[0]):
            for j in range(scales.shape[1]):
                at = slice(i * high, (i + 1) * high), slice(j * wide, (j + 1) * wide)
                scales[i, j] = spread[at] = weight[at].abs().max() / 448
        stored[name] = (weight / spread).to(torch.float8_e4m3fn)
        meant[name] = stored[name].float() * spread
        end = "_scale_inv" if way == "block" else "_scale"
        stored[name + end] = scales.reshape(1) if way == "tensor" else scales
        stored[name.removesuffix("weight") + "input_scale"] = torch.ones(1)
    return stored, meant


@pytest.mark.parametrize(
    ("name", "way", "said"),
    (
        ("qwen3", "block", {"quant_method": "fp8", "weight_block_size": [32, 20]}),
        ("qwen3-moe", "block", {"quant_method": "fp8", "weight_block_size": [32, 20]}),
        ("llama", "row", {"quant_method": "compressed-tensors", "format": "float-quantized"}),
        ("gemma3", "tensor", {"quant_method": "modelopt", "quant_algo": "FP8"}),
    ),
)
def test_an_fp8_checkpoint_is_the_model_that_it_stands_for(
    tmp_path: Path, name: str, way: str, said: dict[str, Any]
) -> None:
    config = CONFIGS[name]
    stored, meant = quantised(weights_of(config), way)
    assert any(weight.dtype == torch.float8_e4m3fn for weight in stored.values())
    found = load(write(tmp_path / "f", config | {"quantization_config": said}, stored))
    plain = load(write(tmp_path / "p", config, meant))
    assert torch.equal(logits(found, (24,)), logits(plain, (24,)))


def test_fp8_weights_without_their_scale_or_their_word_are_refused(tmp_path: Path) -> None:
    config = CONFIGS["qwen3"]
    stored, _ = quantised(weights_of(config), "block")
    with pytest.raises(UnsupportedModel, match="which config.json doesn't say"):
        load(write(tmp_path / "a", config, {k: v for k, v in stored.items() if "scale" not in k}))
    said = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [32, 20]}}
    lost = "model.layers.1.mlp.up_proj.weight_scale_inv"
    with pytest.raises(WeightsError, match=r"missing tensor model\.layers\.1\.mlp\.up_proj"):
        kept_ones = {k: v for k, v in stored.items() if k != lost}
        load(write(tmp_path / "b", config | said, kept_ones))
    wrong = stored | {lost: torch.ones(1, 2)}
    with pytest.raises(WeightsError, match=r"weight_scale_inv is \[1, 2\]"):
        load(write(tmp_path / "c", config | said, wrong))


@pytest.mark.peers
def test_the_kept_logits_are_what_transformers_says_today(tmp_path: Path) -> None:
    import subprocess

    root = Path(__file__).parents[3]
    python = root / ".peers/venv/bin/python"
    if not python.exists():
        pytest.skip("scripts/peers.sh makes the interpreter that has transformers")
    command = [str(python), "-m", "tests.engine.model.families", str(tmp_path)]
    subprocess.run(command, cwd=root, check=True, capture_output=True)
    for name in CONFIGS:
        found = torch.tensor(json.loads((tmp_path / f"{name}.json").read_text()))
        torch.testing.assert_close(found.double(), kept(name), rtol=1e-6, atol=1e-6)
