"""Acceptance under a grammar: masks of a sample's answer, and temperatures fitted under them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from agentspec import cli
from agentspec.engine.train.config import DraftToml
from agentspec.engine.train.data import read_samples
from agentspec.engine.train.export import read_draft
from agentspec.engine.train.losses import Head
from agentspec.engine.train.masks import SampleMasks, masked_overlap, unpacked
from agentspec.engine.train.target import Target

SCHEMA = {
    "type": "object",
    "properties": {"thing": {"enum": ["ring", "king"]}, "in": {"type": "boolean"}},
    "required": ["thing", "in"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA, "strict": True}}


def test_overlap_under_a_mask_by_hand():
    """Draft (1/2, 1/4, 1/4), target even; the mask leaves the first two, or one, or isn't there."""
    head = Head(torch.eye(3).double(), chunk=2)
    hidden = torch.tensor([[math.log(2.0), 0.0, 0.0]]).double().expand(3, 3)
    words = [torch.tensor([bits], dtype=torch.int32) for bits in (0b011, 0b100)]
    masked, overlap = masked_overlap(
        head, hidden, None, None, torch.zeros(1, 3).double(), torch.zeros(3).long(), [*words, None]
    )
    assert masked.tolist() == [True, False, False]
    assert overlap.tolist() == pytest.approx([1 - 1 / 6, 1.0, 0.0])


def test_overlap_under_a_mask_of_a_draft_with_a_shortlist():
    """It knows the tokens 0 and 2 (1/2 each); the target is even under each mask."""
    head = Head.of(torch.eye(3).double(), 2, torch.tensor([0, 2]))
    words = [torch.tensor([bits], dtype=torch.int32) for bits in (0b111, 0b011, 0b010)]
    masked, overlap = masked_overlap(
        head,
        torch.zeros(3, 3).double(),
        None,
        None,
        torch.zeros(1, 3).double(),
        torch.zeros(3).long(),
        words,
    )
    assert masked.tolist() == [True, True, False]
    assert overlap.tolist() == pytest.approx([2 / 3, 1 / 2, 0.0])


def test_words_are_unpacked_from_the_lowest_bit():
    words = torch.tensor([[5, -1]], dtype=torch.int32)
    found = unpacked(words, 40)
    assert found.shape == (1, 40)
    assert found[0, :32].nonzero().flatten().tolist() == [0, 2] and found[0, 32:].all()


def test_stages_by_the_command_line_with_a_grammar(
    write: Callable[..., DraftToml], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """All stages as a user runs them; masks of the answers allow them and little else."""
    toml = write(epochs=8, held_out=0, batch=2)
    shutil.rmtree(toml.folder)
    asks = [
        {"id": text, "messages": [{"role": "user", "content": text}], "response_format": FORMAT}
        for text in ("ring", "king", "a thing")
    ]
    (tmp_path / "prompts.jsonl").write_text("".join(json.dumps(ask) + "\n" for ask in asks))

    def run(stage: str, *options: str) -> dict:
        assert cli.main(["draft", stage, "--config", str(tmp_path / "draft.toml"), *options]) == 0
        return json.loads(capsys.readouterr().out)

    assert run("regenerate")["answered"] == 3
    target = Target.open(toml)
    samples = read_samples(toml, target)
    masks = SampleMasks(target, samples)
    for sample in samples:
        json.loads(sample.text)
        words = masks(sample.id)
        answer = sample.ids[sample.prompt_tokens :]
        assert words is not None and len(words) == len(answer)
        allowed = unpacked(words, target.checkpoint.config.vocab)
        assert all(allowed[i, token] for i, token in enumerate(answer))
        assert allowed.sum() < 40 * len(answer)
    assert masks("nobody") is None
    assert run("cache")["samples"] == 3
    assert run("train")["finished"]
    fitted = run("calibrate", "--on", "train")
    assert max(fitted["masked"]["n"]) > 0
    about = read_draft(toml.run / "export").about
    assert about["calibration"]["masked_temperatures"] == fitted["masked_temperatures"]
    assert run("eval", "--on", "all")["samples"] == 3
    other = run("export", "--layout", "speculators", "--to", str(tmp_path / "spec"))
    assert (tmp_path / "spec" / "model.safetensors").stat().st_size == other["bytes"]


def test_the_command_line_says_what_is_wrong(
    write: Callable[..., DraftToml], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write()
    file = str(tmp_path / "draft.toml")
    assert cli.main(["draft", "calibrate", "--config", file]) == 2
    assert "config.json is missing" in capsys.readouterr().err
    assert cli.main(["draft", "train", "--config", str(tmp_path / "nowhere.toml")]) == 2
    assert "nowhere.toml" in capsys.readouterr().err
    assert cli.main(["draft", "prompts"]) == 0
    prompts = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(prompts) == 40 and all(prompt["messages"] for prompt in prompts)
