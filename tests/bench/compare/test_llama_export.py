"""Drafts in llama.cpp's layouts: each tensor is there once, q and k as its converter turns them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.torch import save_file
from torch import Tensor

from agentspec.bench.compare.llama_export import export
from agentspec.bench.compare.peer import row
from agentspec.bench.workloads import Run
from agentspec.engine.draft.errors import UnsupportedDraft
from agentspec.engine.model.gguf_file import unpermute
from agentspec.engine.model.gguf_header import GgufFile
from tests.engine.draft import blockworld, stepworld
from tests.engine.draft.blockworld import DIM, HIDDEN


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Only its tokenizer is read."""
    path = tmp_path / "target.gguf"
    writer = GGUFWriter(str(path), "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "b"])
    writer.add_uint32("tokenizer.ggml.eos_token_id", 1)
    writer.add_string("tokenizer.chat_template", "none of the draft's business")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def written(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def eagle(folder: Path, taps: list[int], kind: str = "llama") -> tuple[Path, dict[str, Tensor]]:
    tensors = stepworld.tensors("eagle3", kind)
    tensors["fc.weight"] = torch.randn(HIDDEN, len(taps) * HIDDEN)
    config = stepworld.config("eagle3", target_layer_ids=taps, kind=kind)
    return written(folder, config, tensors), tensors


def test_eagle3(target: Path, tmp_path: Path):
    folder, tensors = eagle(tmp_path / "draft", [0, 1, 2])
    assert export(folder, target, tmp_path / "out.gguf") == "draft-eagle3"
    found = GgufFile(tmp_path / "out.gguf")
    assert found.fields["general.architecture"] == "eagle3"
    assert found.fields["eagle3.target_layers"] == [1, 2, 3], "layers by what enters them"
    assert found.fields["tokenizer.ggml.tokens"] == ["a", "b"]
    assert "tokenizer.chat_template" not in found.fields
    assert len(found.tensors) == len(tensors)
    for ours, theirs in (("q_proj", "attn_q"), ("k_proj", "attn_k")):
        stored = torch.from_numpy(found.read(f"blk.0.{theirs}.weight"))
        wanted = tensors[f"layers.0.self_attn.{ours}.weight"].half().float()
        assert torch.equal(unpermute(stored, DIM), wanted)
        assert not torch.equal(stored, wanted)
    value = tensors["layers.0.self_attn.v_proj.weight"].half().float().numpy()
    assert np.array_equal(found.read("blk.0.attn_v.weight"), value)
    norm = tensors["layers.0.hidden_norm.weight"].numpy()
    assert np.array_equal(found.read("blk.0.attn_norm_2.weight"), norm)


def test_dspark(target: Path, tmp_path: Path):
    raw = blockworld.draft_config(kind="qwen3")
    tensors = blockworld.draft_tensors(raw)
    folder = blockworld.write_draft(tmp_path / "draft", raw, tensors)
    assert export(folder, target, tmp_path / "out.gguf") == "draft-dspark"
    found = GgufFile(tmp_path / "out.gguf")
    fields = found.fields
    assert (fields["dflash.block_size"], fields["dflash.block_count"]) == (5, 2)
    assert fields["tokenizer.ggml.mask_token_id"] == blockworld.MASK
    assert len(found.tensors) == len(tensors)
    for ours, theirs in (
        ("markov_head.markov_w1", "markov_w1"),
        ("layers.1.self_attn.q_proj", "blk.1.attn_q"),
    ):
        wanted = tensors[f"{ours}.weight"].half().float().numpy()
        assert np.array_equal(found.read(f"{theirs}.weight"), wanted)
    assert found.tensors["enc.output_norm.weight"].shape == (HIDDEN,)
    assert found.tensors["conf_proj.bias"].shape == (1,)


def test_what_has_no_place_is_refused(target: Path, tmp_path: Path):
    out = tmp_path / "out.gguf"
    with pytest.raises(UnsupportedDraft, match="exactly 3 tapped"):
        export(eagle(tmp_path / "two", [0, 2])[0], target, out)
    with pytest.raises(UnsupportedDraft, match="no norms on queries"):
        export(eagle(tmp_path / "qwen", [0, 1, 2], "qwen3")[0], target, out)
    raw = blockworld.draft_config()
    llama = blockworld.write_draft(tmp_path / "llama", raw, blockworld.draft_tensors(raw))
    with pytest.raises(UnsupportedDraft, match="norm queries and keys"):
        export(llama, target, out)
    mtp = written(tmp_path / "mtp", stepworld.config("mtp"), stepworld.tensors("mtp"))
    with pytest.raises(UnsupportedDraft, match="method 'mtp'"):
        export(mtp, target, out)
    assert not out.exists()


def run(tok_s: float, length: float, looped: bool = False) -> Run:
    return Run(
        case="c",
        workload="code",
        out_tokens=9,
        tok_s=tok_s,
        prefill_tok_s=1.0,
        accepted_length=length,
        looped=looped,
        text="t",
    )


def test_a_row_leaves_loops_out():
    runs = [run(30.0, 3.0), run(20.0, 2.0), run(99.0, 8.0, looped=True)]
    found = row("eagle3", "draft-eagle3", "code", runs, [run(10.0, 1.0)] * 3)
    assert (found["accepted_length"], found["speedup"], found["n"]) == (2.5, 2.5, 2)
    assert (found["looped"], found["same_text"]) == (1, 2)
