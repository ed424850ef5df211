"""The stages on a tiny target: from prompts to a calibrated draft, interrupted and not."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from agentspec.cli import main
from agentspec.engine.train.caching import cache
from agentspec.engine.train.calibrate import calibrate
from agentspec.engine.train.config import DraftToml
from agentspec.engine.train.curve import points
from agentspec.engine.train.data import Data
from agentspec.engine.train.distributed import Ranks
from agentspec.engine.train.errors import Mismatch, TrainError
from agentspec.engine.train.evaluate import evaluate
from agentspec.engine.train.export import read_draft
from agentspec.engine.train.identity import file_sha256
from agentspec.engine.train.regenerate import regenerate
from agentspec.engine.train.target import Target
from agentspec.engine.train.trainer import Run, train
from agentspec.settings import SettingsError
from tests.engine.model import tiny
from tests.engine.train.conftest import SHAPE, write_target

Write = Callable[..., DraftToml]
ROOT = Path(__file__).parents[3]


def weights(run: Run) -> dict[str, torch.Tensor]:
    return {name: value.clone() for name, value in run.stepper.net.state_dict().items()}


def test_from_prompts_to_a_calibrated_draft(write: Write, tmp_path: Path):
    toml = write(epochs=40, held_out=0, learning_rate=2e-2, anchors=24, ce=1.0)
    answers = [json.loads(line) for line in toml.answers.read_text().splitlines()]
    assert {a["id"] for a in answers} == {f"p{i}" for i in range(7)}
    made = train(toml)
    assert made["finished"] and made["budget"]["steps"] == 80
    curve = points(toml.run / "curve.jsonl")
    assert [p["step"] for p in curve] == list(range(1, 81))
    assert curve[-1]["loss"] < 0.7 * curve[0]["loss"]
    assert made["budget"]["trained_tokens"] == curve[-1]["rows"] > 0
    found = evaluate(toml, on="train")
    assert found["greedy"]["accepted_length"] > 2 and found["samples"] == 7
    fitted = calibrate(toml, on="train")
    about = read_draft(toml.run / "export").about
    assert about["calibration"]["temperatures"] == fitted["temperatures"]
    assert len(fitted["temperatures"]) == 4
    with pytest.raises(TrainError, match="no sample is held out"):
        evaluate(toml)


def test_answers_are_the_targets_greedy_ones(write: Write):
    """Every answer token is the best one of a dense pass that knows nothing of the engine."""
    toml = write()
    dense = tiny.random_weights(SHAPE, 0)
    for line in toml.answers.read_text().splitlines()[:3]:
        answer = json.loads(line)
        ids, start = answer["ids"], answer["prompt_tokens"]
        logits, _ = tiny.dense(SHAPE, dense, ids)
        assert ids[start:] == logits[start - 1 : -1].argmax(-1).tolist()
        assert len(ids) - start == 24 or ids[-1] == 2


def test_features_are_the_layers_outputs_and_the_normed_last(write: Write):
    toml = write()
    target = Target.open(toml)
    data = Data.open(toml, target)
    entry = data.source.entries[-1]
    ids, found = data.source.read(entry)
    dense_weights = tiny.random_weights(SHAPE, 0)
    logits, layers = tiny.dense(SHAPE, dense_weights, ids.tolist())
    expected = torch.cat((layers[0], layers[2]), -1).bfloat16()
    torch.testing.assert_close(found.features, expected, rtol=0.02, atol=0.02)
    head = dense_weights["model.embed_tokens.weight"].double()
    torch.testing.assert_close(found.last.double() @ head.T, logits, rtol=0.02, atol=0.3)


def test_a_second_run_of_a_stage_does_only_what_is_missing(write: Write):
    toml = write()
    lines = toml.answers.read_text().splitlines(keepends=True)
    # As a kill would leave it: three answers gone, one half written.
    toml.answers.write_text("".join(lines[:4]) + lines[4][:20])
    told = regenerate(toml)
    assert (told["there before"], told["answered"]) == (4, 3)
    again = toml.answers.read_text().splitlines(keepends=True)
    assert again[:4] == lines[:4] and sorted(again) == sorted(lines)
    shards = {path: path.stat().st_mtime_ns for path in toml.features.glob("*.safetensors")}
    cache(toml)
    assert {p: p.stat().st_mtime_ns for p in toml.features.glob("*.safetensors")} == shards


def test_resumed_is_uninterrupted_bit_for_bit(write: Write):
    toml = write(max_steps=6)
    target = Target.open(toml)
    whole = Run.open(toml, target, Ranks(), restart=True)
    losses = [whole.step().loss for _ in range(6)]
    assert whole.finished
    parts: list[float] = []
    for _ in range(3):
        run = Run.open(toml, Target.open(toml), Ranks(), restart=not parts)
        parts += [run.step().loss, run.step().loss]
        run.save()
    assert parts == losses and run.state.rows == whole.state.rows
    for name, value in weights(run).items():
        assert torch.equal(value, weights(whole)[name]), name
    moments = zip(
        run.stepper.optimizer.state.values(), whole.stepper.optimizer.state.values(), strict=True
    )
    assert all(torch.equal(a["exp_avg"], b["exp_avg"]) for a, b in moments)


def test_training_goes_on_where_it_stopped(write: Write):
    toml = write(epochs=2)
    first = train(toml, stop_after_s=0.0)
    assert not first["finished"] and first["budget"]["steps"] == 0
    assert train(toml)["finished"]
    steps = [point["step"] for point in points(toml.run / "curve.jsonl")]
    assert train(toml)["budget"]["steps"] == steps[-1]
    assert [point["step"] for point in points(toml.run / "curve.jsonl")] == steps


def test_a_checkpoint_of_other_settings_is_refused_by_name(write: Write):
    toml = write(epochs=2)
    train(toml)
    with pytest.raises(Mismatch, match=r"train\.\w+ was [^{]+, now [^{]+;"):
        train(write(epochs=2, learning_rate=1e-4))
    assert train(write(epochs=2, learning_rate=1e-4), restart=True)["finished"]


def test_features_of_another_target_are_refused_by_name(write: Write, tmp_path: Path):
    toml = write()
    with pytest.raises(Mismatch, match=r"layers \[0, 2\], not \[1, 2\]"):
        train(write(layers=[1, 2]))
    write_target(tmp_path / "target", seed=9)
    toml = write()
    with pytest.raises(Mismatch, match="weights_id"):
        train(toml)
    with pytest.raises(Mismatch, match="weights_id"):
        cache(toml)
    with pytest.raises(Mismatch, match="answers of another target: weights_id"):
        regenerate(toml)


def test_new_answers_need_new_features(write: Write):
    toml = write()
    line = json.loads(toml.answers.read_text().splitlines()[0])
    with toml.answers.open("a") as stream:
        stream.write(json.dumps(line | {"id": "new"}) + "\n")
    with pytest.raises(TrainError, match="run 'agentspec draft cache'"):
        train(toml)


def test_online_features_are_the_cached_ones(write: Write):
    toml = write()
    target = Target.open(toml)
    kept, online = Data.open(toml, target), Data.open(write(online=True), target)
    for entry in kept.source.entries:
        (twin,) = [e for e in online.source.entries if e.id == entry.id]
        ids, found = kept.source.read(entry)
        other_ids, other = online.source.read(twin)
        assert torch.equal(ids, other_ids)
        torch.testing.assert_close(found.features, other.features, rtol=0.02, atol=0.02)
        torch.testing.assert_close(found.last, other.last, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("method", ["dflash", "jetspec", "eagle3", "mtp"])
def test_every_method_trains(write: Write, method: str):
    toml = write(method=method)
    made = train(toml)
    assert made["method"] == method and made["finished"]
    draft = read_draft(toml.run / "export")
    assert draft.spec.method == method and draft.about["trained_tokens"] > 0
    found = evaluate(toml, on="all")
    assert 1 <= found["greedy"]["accepted_length"] <= 1 + draft.spec.proposals
    assert found["greedy"]["n"] == 7


def test_a_draft_may_begin_with_layers_of_the_target(write: Write):
    toml = write(init_layers=[3], max_steps=1, learning_rate=0.0, embeddings=True, int8=True)
    made = train(toml)
    draft, dense = read_draft(toml.run / "export"), tiny.random_weights(SHAPE, 0)
    for name in ("self_attn.q_proj", "mlp.down_proj", "input_layernorm"):
        theirs = dense[f"model.layers.3.{name}.weight"]
        mine = draft.tensors[f"layers.0.{name}.weight"].float()
        assert ((mine - theirs).abs() <= theirs.abs().max() / 100).all()
    table = dense["model.embed_tokens.weight"]
    assert torch.equal(draft.tensors["embed_tokens.weight"], table.bfloat16())
    assert made["data"]["prompts_sha256"] == [file_sha256(toml.base / "prompts.jsonl")]
    assert made["settings"]["draft"]["init_layers"] == [3]


def test_stages_in_the_wrong_order_say_which_is_missing(write: Write):
    toml = write()
    shutil.rmtree(toml.features)
    with pytest.raises(TrainError, match="manifest.json is missing"):
        train(toml)
    shutil.rmtree(toml.folder)
    with pytest.raises(TrainError, match="draft regenerate"):
        cache(toml)


def test_what_no_engine_would_load_is_refused_before_it_costs_hours(write: Write):
    for layers in ([0, 4], [2, 0], [0, 0], [-1, 2], [0, 99]):
        with pytest.raises(TrainError, match=r"cache\.layers .* must ascend within 0\.\.3"):
            cache(write(layers=layers))
    with pytest.raises(TrainError, match=r"draft\.init_layers: .* no layers \[5\]"):
        train(write(init_layers=[1, 5]))
    with pytest.raises(TrainError, match=r"train\.device 'mars'"):
        train(write(device="mars"))
    for key, value in (("vocabulary", 100), ("block_size", 65)):
        with pytest.raises(SettingsError, match=key):
            write(**{key: value})


def test_answers_that_were_drawn_otherwise_are_not_taken_for_these(write: Write):
    with pytest.raises(Mismatch, match=r"regenerate\.temperature = 0\.0, not 0\.7"):
        regenerate(write(temperature=0.7))
    assert regenerate(write())["there before"] == 7


def test_features_of_other_answers_are_not_taken_for_these(write: Write):
    """Answers made anew under the same ids: the features of the old ones are told, and replaced."""
    toml = write()
    lines = [json.loads(line) for line in toml.answers.read_text().splitlines()]
    lines[2]["ids"][-1] = (lines[2]["ids"][-1] + 1) % SHAPE.vocab
    del lines[4]["ids"][-1]
    toml.answers.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(TrainError, match=r"features of other answers .* 'agentspec draft cache'"):
        train(toml)
    cache(toml)
    source = Data.open(toml, Target.open(toml)).source
    assert {entry.id: source.read(entry)[0].tolist() for entry in source.entries} == {
        line["id"]: line["ids"] for line in lines
    }
    train(toml)


def test_what_is_broken_on_disk_is_named_and_mended_by_its_stage(write: Write):
    toml = write(max_steps=1)
    train(toml)
    checkpoint = toml.run / "checkpoint.pt"
    whole = checkpoint.read_bytes()
    for broken in (whole[: len(whole) // 2], b"nothing of the kind", b""):
        checkpoint.write_bytes(broken)
        with pytest.raises(TrainError, match=r"checkpoint\.pt cannot be read.*--restart"):
            train(toml)
    assert train(toml, restart=True)["finished"]
    shard = next(toml.features.glob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(TrainError, match=rf"{shard.name} cannot be read.*remove it"):
        train(toml, restart=True)
    shard.unlink()
    with pytest.raises(TrainError, match="agentspec draft cache"):
        train(toml, restart=True)
    cache(toml)
    assert train(toml, restart=True)["finished"]
    lines = toml.answers.read_text().splitlines(keepends=True)
    for broken in ("{\n", '{"id": "x"}\n', "[1]\n"):
        toml.answers.write_text(lines[0] + broken + lines[1])
        for stage in (regenerate, cache):
            with pytest.raises(TrainError, match=r"answers\.jsonl, line 2: no answer"):
                stage(toml)


def test_a_disk_that_is_full_is_told(write: Write):
    toml = write(max_steps=1)
    command = [sys.executable, "-m", "tests.engine.train.full_disk", str(toml.base / "draft.toml")]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    checkpoint, shard = told.splitlines()
    assert re.match(r"TrainError: .*checkpoint\.part cannot be written", checkpoint)
    assert re.match(r"TrainError: .*00000\.part cannot be written", shard)
    assert not list(toml.folder.rglob("*.part")) and not list(toml.features.glob("*.json"))


@pytest.mark.parametrize("words", [["eval", "--n", "0"], ["train", "--minutes", "-1"]])
def test_counts_and_minutes_are_positive(words: list[str], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["draft", *words, "--config", "draft.toml"])
    assert f"argument {words[1]}" in capsys.readouterr().err
