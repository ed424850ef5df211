"""Drafts on disk: three layouts mean the same draft; what doesn't fit is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from agentspec.engine.draft.base import Proposal
from agentspec.engine.draft.block import BlockDrafter, BlockOptions
from agentspec.engine.draft.block_config import block_config
from agentspec.engine.draft.errors import DraftError, DraftMismatch, UnsupportedDraft
from agentspec.engine.draft.load import load_block
from agentspec.engine.draft.target import TargetFacts, check_identity
from agentspec.engine.exact_runner import ExactRunner, Unavailable
from agentspec.engine.model.config import Stretch
from agentspec.engine.model.errors import ModelError, WeightsError
from agentspec.engine.runner import Runner
from agentspec.settings import EngineSettings
from tests.engine.draft import blockworld as world
from tests.engine.draft.test_block_parity import proposal_of, text

SETTINGS: dict[str, Any] = {"kv_tokens": 512, "context_tokens": 256, "threads": 1}


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return world.write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module", params=["torch", "int8"])
def runner(request, target):
    if request.param == "torch":
        return Runner.load(EngineSettings(dtype="fp32", **SETTINGS), target)
    try:
        return ExactRunner.load(EngineSettings(dtype="int8", **SETTINGS), target)
    except Unavailable as error:
        pytest.skip(str(error))


def load(path: Path, runner, **options: Any) -> BlockDrafter:
    facts = TargetFacts(config=runner.model.config, format="int8")
    return load_block(path, runner, facts, options=BlockOptions(**options))


def drafted(path: Path, runner, **options: Any) -> Proposal:
    return proposal_of(load(path, runner, **options), runner, text())


def close(one: Proposal, other: Proposal) -> None:
    assert one.tokens == other.tokens
    assert one.confidence == pytest.approx(other.confidence, abs=1e-5)


def speculators(raw: dict[str, Any]) -> dict[str, Any]:
    """The same draft, as vllm-project/speculators writes it."""
    nested = {name: raw[name] for name in world.shape()}
    rest = {name: value for name, value in raw.items() if name not in nested}
    ids = rest.pop("target_layer_ids")
    return rest | {
        "architectures": ["DSparkSpeculator"],
        "speculators_model_type": "dspark",
        "transformer_layer_config": nested,
        "aux_hidden_state_layer_ids": [tap + 1 for tap in ids],
        "draft_vocab_size": world.VOCAB,
        "speculators_config": {"algorithm": "dspark"},
    }


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_speculators_layout_is_the_same_draft(kind, runner, tmp_path):
    raw = world.draft_config(kind=kind)
    tensors = world.draft_tensors(raw)
    ours = world.write_draft(tmp_path / "deepspec", raw, tensors)
    theirs = world.write_draft(tmp_path / "speculators", speculators(raw), tensors)
    close(drafted(ours, runner), drafted(theirs, runner))
    shifted = speculators(raw) | {"aux_hidden_state_layer_ids": [2, 3]}
    wrong = world.write_draft(tmp_path / "wrong", shifted, tensors)
    assert drafted(wrong, runner) != drafted(ours, runner), "an id that is off by one is seen"


def test_zlab_layout_is_the_same_draft(runner, tmp_path):
    raw = world.draft_config(
        kind="qwen3", markov_rank=0, enable_confidence_head=False, sample_from_anchor=False
    )
    tensors = world.draft_tensors(raw)
    ours = world.write_draft(tmp_path / "deepspec", raw, tensors)
    theirs = world.shape("qwen3", layers=2) | {
        "architectures": ["DFlashDraftModel"],
        "block_size": raw["block_size"],
        "num_target_layers": world.LAYERS,
        "dflash_config": {"mask_token_id": world.MASK, "target_layer_ids": [0, 2]},
    }
    zlab = world.write_draft(tmp_path / "zlab", theirs, tensors)
    assert load(zlab, runner).name == "dflash"
    assert len(drafted(zlab, runner)) == raw["block_size"] - 1
    close(drafted(ours, runner), drafted(zlab, runner))


@pytest.mark.parametrize("markov", ["vanilla", "gated", "rnn"])
def test_int8_form_drafts_what_its_codes_stand_for(markov, runner, tmp_path):
    raw = world.draft_config(markov_head_type=markov)
    tensors = world.int8(world.draft_tensors(raw))
    dense: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if not name.endswith("_scale"):
            scale = tensors.get(f"{name}_scale")
            dense[name] = tensor.float() if scale is None else tensor.float() * scale[:, None]
    small = world.write_draft(tmp_path / "int8", raw, tensors)
    large = world.write_draft(tmp_path / "float", raw, dense)
    one, other = drafted(small, runner), drafted(large, runner)
    same = sum(a == b for a, b in zip(one.tokens, other.tokens, strict=True))
    assert same == len(one) or (runner.exact and same >= 1)


def test_bf16_weights_and_the_prefix_of_some_exporters(runner, tmp_path):
    raw = world.draft_config()
    tensors = {k: t.bfloat16() for k, t in world.draft_tensors(raw).items()}
    ours = world.write_draft(tmp_path / "a", raw, tensors)
    named = {f"model.{k}" if k.startswith("layers") else k: t for k, t in tensors.items()}
    theirs = world.write_draft(tmp_path / "b", raw, {k: t.float() for k, t in named.items()})
    assert drafted(ours, runner) == drafted(theirs, runner)


def test_own_tables_go_before_the_targets(runner, tmp_path):
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    shared = drafted(world.write_draft(tmp_path / "a", raw, tensors), runner)
    read = runner.model
    embedding = torch.as_tensor(read.embedding).float()
    own = tensors | {"embed_tokens.weight": embedding.clone()}
    assert drafted(world.write_draft(tmp_path / "b", raw, own), runner).tokens == shared.tokens
    own["lm_head.weight"] = torch.randn(world.VOCAB, world.HIDDEN)
    other = drafted(world.write_draft(tmp_path / "c", raw, own), runner)
    assert other.tokens != shared.tokens


def test_a_shortlist_drafts_its_tokens_only(runner, tmp_path):
    """Of the target's own lm_head, by d2t or by number, and the Markov head's rows with it."""
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    whole = world.write_draft(tmp_path / "whole", raw, tensors)
    ids = torch.arange(world.VOCAB).flip(0)[:64]
    short = raw | {"draft_vocab_size": 64}
    rows = tensors | {"d2t": ids - torch.arange(64)}
    listed = world.write_draft(tmp_path / "listed", short, rows)
    rows = rows | {
        "markov_head.markov_w2.weight": tensors["markov_head.markov_w2.weight"][ids].clone()
    }
    rows["lm_head.weight"] = _head(runner)[ids].clone()
    own = world.write_draft(tmp_path / "own", short, rows)
    seen = set()
    for seed in range(6):
        by_list = proposal_of(load(listed, runner), runner, text(seed=seed))
        assert set(by_list.tokens) <= set(ids.tolist())
        by_own = proposal_of(load(own, runner), runner, text(seed=seed))
        assert by_list.tokens[0] == by_own.tokens[0]
        first = proposal_of(load(whole, runner, head_rows=48), runner, text(seed=seed))
        assert max(first.tokens) < 48
        full = proposal_of(load(whole, runner), runner, text(seed=seed))
        seen |= set(full.tokens)
        if set(full.tokens) <= set(ids.tolist()):
            assert full.tokens == by_list.tokens
    assert min(seen) < world.VOCAB - 64, "the whole vocabulary is really used without a shortlist"


def _head(runner) -> Tensor:
    if not runner.exact:
        return runner.model.lm_head
    from agentspec_kernels.linear_q import unpack

    head = runner.model.head
    packed = unpack(head.packed, head.outputs, head.inputs, four_bit=False)
    return torch.from_numpy(packed.dense())


FACTS = TargetFacts(
    config=block_config(world.draft_config()).shape,
    format="int8",
    weights_id=lambda: "w",
    tokenizer_sha256=lambda: "t",
    chat_template_sha256=lambda: "c",
)


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"target_layer_ids": [0, 3]}, "target_layer_ids"),
        ({"target_layer_ids": [-1, 2]}, "target_layer_ids"),
        ({"mask_token_id": world.VOCAB}, "mask_token_id"),
        ({"vocab_size": 128}, "vocab_size"),
        ({"hidden_size": 128}, "hidden_size"),
        ({"agentspec": {"target": {"weights_id": "other"}}}, "target.weights_id"),
        ({"agentspec": {"target": {"format": "torch-bfloat16"}}}, "target.format"),
        ({"agentspec": {"target": {"vocab_size": 97}}}, "target.vocab_size"),
        ({"agentspec": {"target": {"tokenizer_sha256": "x"}}}, "target.tokenizer_sha256"),
        ({"agentspec": {"target": {"chat_template_sha256": "x"}}}, "target.chat_template_sha256"),
    ],
)
def test_a_mismatch_is_refused_by_name(changes, what, runner, tmp_path):
    raw = world.draft_config() | changes
    path = world.write_draft(tmp_path, raw, world.draft_tensors(world.draft_config()))
    facts = TargetFacts(
        config=runner.model.config,
        format="int8",
        weights_id=FACTS.weights_id,
        tokenizer_sha256=FACTS.tokenizer_sha256,
        chat_template_sha256=FACTS.chat_template_sha256,
    )
    with pytest.raises(DraftMismatch) as caught:
        load_block(path, runner, facts)
    assert caught.value.what == what and what in str(caught.value)


def test_what_fits_and_what_isnt_known_is_taken():
    check_identity({"weights_id": "w", "format": "int8", "chat_template_sha256": "c"}, FACTS)
    check_identity({"weights_id": None, "name": "another name"}, FACTS)
    check_identity({"weights_id": "other"}, TargetFacts(config=FACTS.config, format="int8"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"block_size": 0}, "block_size"),
        ({"block_size": 100}, "block_size"),
        ({"block_size": None}, "block_size"),
        ({"mask_token_id": None}, "mask_token_id"),
        ({"target_layer_ids": [2, 0]}, "target_layer_ids"),
        ({"target_layer_ids": []}, "target_layer_ids"),
        ({"markov_head_type": "mystery"}, "markov_head_type"),
        ({"model_type": "gemma4_text"}, "model_type"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "yarn"),
        ({"agentspec": {"calibration": {"temperatures": [1.0, 0.0]}}}, "calibration"),
        ({"agentspec": {"calibration": {"temperatures": "1"}}}, "temperatures"),
        ({"agentspec": 3}, "agentspec"),
        ({"architectures": None, "block_size": "7"}, "block_size"),
        ({"dflash_config": 3}, "dflash_config"),
        ({"target_layer_ids": ["0", "2"]}, "target_layer_ids"),
        ({"target_layer_ids": 0}, "target_layer_ids"),
        ({"markov_rank": 4096}, "markov_rank"),
        ({"num_attention_heads": 0}, "num_attention_heads"),
        ({"draft_vocab_size": 0}, "draft_vocab_size"),
        ({"draft_vocab_size": 4096}, "draft_vocab_size"),
        ({"rope_scaling": "yarn"}, "rope_scaling"),
    ],
)
def test_what_is_not_known_is_refused_by_name(changes, named, runner, tmp_path):
    path = world.write_draft(tmp_path, world.draft_config() | changes, {"x": torch.zeros(1)})
    with pytest.raises(ModelError, match=named):
        load(path, runner)


@pytest.mark.parametrize("changes", [{"head_dim": 288}, {"intermediate_size": 16416}])
def test_what_the_kernels_buffers_do_not_hold_is_refused(changes, runner, tmp_path):
    if not runner.exact:
        pytest.skip("stock torch has no such bounds")
    path = world.write_draft(tmp_path, world.draft_config() | changes, {"d2t": torch.zeros(1)})
    with pytest.raises(UnsupportedDraft, match=f"{next(iter(changes))} .* is above"):
        load(path, runner)


def test_missing_and_misshapen_tensors_are_named(runner, tmp_path):
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    for name in ("fc.weight", "layers.1.mlp.up_proj.weight", "markov_head.markov_w2.weight"):
        less = {key: tensor for key, tensor in tensors.items() if key != name}
        with pytest.raises(WeightsError, match=name):
            load(world.write_draft(tmp_path / name, raw, less), runner)
        wrong = tensors | {name: tensors[name][:, :-1]}
        with pytest.raises(WeightsError, match=name):
            load(world.write_draft(tmp_path / f"{name}2", raw, wrong), runner)
    short = raw | {"draft_vocab_size": 64}
    with pytest.raises(WeightsError, match="d2t"):
        load(world.write_draft(tmp_path / "short", short, tensors), runner)


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.int32])
@pytest.mark.parametrize("name", ["layers.1.mlp.up_proj.weight", "norm.weight"])
def test_a_format_of_weights_that_is_not_known_is_refused_by_name(dtype, name, runner, tmp_path):
    """Codes without their scale look like weights, and would draft badly without a word."""
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    wrong = tensors | {name: (tensors[name] * 9).to(dtype)}
    kind = str(dtype).removeprefix("torch.")
    with pytest.raises(WeightsError, match=f"{name} of the draft is {kind}"):
        load(world.write_draft(tmp_path, raw, wrong), runner)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(
    "name",
    [
        *("layers.1.self_attn.q_proj.weight", "norm.weight", "fc.weight", "lm_head.weight"),
        *("markov_head.markov_w1.weight", "confidence_head.proj.weight"),
        "layers.0.mlp.up_proj.weight_scale",
    ],
)
def test_weights_that_are_no_numbers_are_refused_by_name(name, value, runner, tmp_path):
    raw = world.draft_config()
    tensors = world.draft_tensors(raw) | {"lm_head.weight": torch.ones(world.VOCAB, world.HIDDEN)}
    if name.endswith("_scale"):
        tensors = world.int8(tensors)
    broken = tensors[name].clone()
    broken.view(-1)[3] = value
    with pytest.raises(WeightsError, match=f"{name} of the draft holds NaN or infinity"):
        load(world.write_draft(tmp_path, raw, tensors | {name: broken}), runner)


def test_folders_that_hold_no_draft(runner, tmp_path):
    with pytest.raises(DraftError, match=r"config\.json"):
        load(tmp_path, runner)
    (tmp_path / "config.json").write_text("[]")
    with pytest.raises(DraftError, match="no object"):
        load(tmp_path, runner)
    (tmp_path / "config.json").write_text(json.dumps(world.draft_config()))
    with pytest.raises(DraftError, match="safetensors"):
        load(tmp_path, runner)
    (tmp_path / "model.safetensors").write_bytes(b"no")
    with pytest.raises(DraftError, match=r"model\.safetensors"):
        load(tmp_path, runner)


def test_a_draft_turns_as_its_stretched_target_does(runner, tmp_path):
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    path = world.write_draft(tmp_path / "a", raw, tensors)
    facts = TargetFacts(config=runner.model.config, format="int8", stretch=Stretch(4.0, "linear"))
    stretched = load_block(path, runner, facts)
    assert stretched.config.shape.position_scale == 4.0
    plain = drafted(path, runner)
    assert proposal_of(stretched, runner, text()).confidence != plain.confidence


def test_confidence_is_divided_by_its_calibration(runner, tmp_path):
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    plain = drafted(world.write_draft(tmp_path / "a", raw, tensors), runner)
    warm = raw | {"agentspec": {"calibration": {"temperatures": [2.0, 1.0, 4.0, 1.0, 0.5]}}}
    scaled = drafted(world.write_draft(tmp_path / "b", warm, tensors), runner)

    def logit(c: float) -> float:
        return float(torch.logit(torch.tensor(c, dtype=torch.float64)))

    for place, temperature in enumerate([2.0, 1.0, 4.0, 1.0, 0.5]):
        assert logit(scaled.confidence[place]) == pytest.approx(
            logit(plain.confidence[place]) / temperature, rel=1e-6, abs=1e-9
        )
