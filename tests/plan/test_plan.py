"""``agentspec plan`` against numbers derived by hand from the models' dimensions."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentspec import cli
from agentspec.plan import flags, presets
from agentspec.plan.anchors import anchors
from agentspec.plan.cli import add_parser
from agentspec.plan.config import read
from agentspec.plan.drafts import block, smaller
from agentspec.plan.hardware import GPUS, PlanError
from agentspec.plan.memory import fit
from agentspec.plan.planner import Ask, plan
from agentspec.plan.roofline import Machine, pass_seconds
from agentspec.plan.speculation import expected, gain, price_per_million, rate_of

EIGHT = Machine(GPUS["H100"], 8)
ONE = Machine(GPUS["H100"], 1)


@pytest.mark.parametrize(
    ("model", "kib"),
    [
        (presets.LLAMA_70B, 320.0),  # 80 layers * 2 * 8 heads * 128 * 2 bytes
        (presets.LLAMA_8B, 128.0),  # 32 * 2 * 8 * 128 * 2
        (presets.QWEN3_8B, 144.0),  # 36 * 2 * 8 * 128 * 2
        (presets.QWEN3_CODER, 96.0),  # 48 * 2 * 4 * 128 * 2
        (presets.GPT_OSS, 36.0),  # half of 36 layers * 2 * 8 * 64 * 2
    ],
)
def test_bytes_of_a_token(model: Any, kib: float):
    assert model.kv_token_bytes() == kib * 1024


def test_compressed_attention():
    """21 layers keep an entry and its index for four tokens, 20 an entry for 128."""
    model = presets.V4_FLASH
    assert model.kv_token_bytes() == pytest.approx(21 * (584 + 132) / 4 + 20 * 584 / 128)
    assert model.kv_window_bytes(8192) == 43 * 584 * 128
    # Of 2,048 entries of a fine layer 512 are attended, but every index is read.
    fine = 2048 * 132 + 512 * 584
    assert model.kv_read_bytes(8192) == pytest.approx(43 * 584 * 128 + 21 * fine + 20 * 64 * 584)


@pytest.mark.parametrize(
    ("model", "total", "active"),
    [
        (presets.LLAMA_70B, 70.55e9, 69.5e9),  # without input embeddings
        (presets.QWEN3_8B, 8.19e9, 7.57e9),
        (presets.QWEN3_CODER, 30.53e9, 3.04e9),
        (presets.GPT_OSS, 116.8e9, 5.13e9),
        (presets.V4_FLASH, 284e9, 12.8e9),
    ],
)
def test_parameters_are_those_of_the_model_cards(model: Any, total: float, active: float):
    assert model.total_params == pytest.approx(total, rel=0.005)
    assert model.active_params == pytest.approx(active, rel=0.01)


def test_weights_of_the_mixed_checkpoint():
    """The model card gives 60.8 GiB."""
    assert presets.GPT_OSS.total_bytes / 2**30 == pytest.approx(60.8, rel=0.01)


def test_experts_touched():
    model = presets.QWEN3_CODER
    assert model.experts_touched(1) == 8
    assert model.experts_touched(2) == pytest.approx(8 + 8 * 120 / 128)
    assert model.experts_touched(10_000) == pytest.approx(128)
    assert presets.LLAMA_8B.experts_touched(4) == 0


def test_what_fits_is_what_is_left_over_bytes_of_a_request():
    room = fit(EIGHT, presets.LLAMA_70B, None, 8192, 64)
    left = 0.9 * 80e9 - room.weights - room.graphs - room.activations
    assert room.weights == pytest.approx(70.55e9 * 2 / 8, rel=1e-3)
    assert room.requests == int(left * 8 / (327_680 * 8192))
    draft = fit(EIGHT, presets.LLAMA_70B, smaller(presets.LLAMA_8B, 5), 8192, 64)
    assert draft.kv_token == 327_680 + 131_072
    assert draft.draft == pytest.approx(8.03e9 * 2 / 8, rel=1e-3)
    assert draft.requests < room.requests


def test_heads_that_cannot_be_split_are_copied():
    """Four heads on eight GPUs: every token is held twice."""
    two, eight = (
        fit(Machine(GPUS["H100"], count), presets.QWEN3_CODER, None, 8192, 1) for count in (2, 8)
    )
    assert eight.kv_token == 2 * two.kv_token == 2 * 96 * 1024


def test_a_model_that_does_not_fit():
    assert not fit(ONE, presets.LLAMA_70B, None, 1024, 1).fits


def test_a_dspark_draft_of_the_small_model():
    """Five layers of 25.2 M attention and 151 M MLP, fc 5 d * d, two Markov matrices of V * 256."""
    draft = block(presets.QWEN3_8B, 5, 7)
    layers = 5 * (2 * 4096 * 40 * 128 + 3 * 4096 * 12288)
    assert draft.weight_bytes == 2 * (layers + 5 * 4096 * 4096 + 2 * 151936 * 256)
    assert draft.shape.kv_token_bytes() == 5 * 2 * 8 * 128 * 2


def test_expected_tokens_and_back():
    assert expected(0.5, 3) == 1.875
    assert expected(1.0, 7) == 8.0
    assert rate_of(1.875, 3) == pytest.approx(0.5)


def test_a_small_pass_takes_the_time_of_its_bytes():
    """One row without context on one GPU: 15.1 GB at three quarters of 3.35 TB/s, 36 layers."""
    read = 7.568e9 * 2 / (3.35e12 * 0.75)
    found = pass_seconds(ONE, presets.QWEN3_8B, 1, 1, 0)
    assert found == pytest.approx(read + 36 * 15e-6, rel=1e-3)


def test_a_large_pass_takes_the_time_of_its_operations():
    found = pass_seconds(ONE, presets.QWEN3_8B, 4096, 1, 0)
    assert found == pytest.approx(2 * 7.568e9 * 4096 / (989.4e12 * 0.6) + 36 * 15e-6, rel=1e-3)


def test_acceptance_decides():
    draft = block(presets.QWEN3_8B, 5, 7)
    good, none = (gain(ONE, presets.QWEN3_8B, draft, 1, 1024, rate) for rate in (0.9, 0.0))
    assert good.speedup > 2 and good.width == 7
    assert none.speedup < 1 and none.width == 1


def test_load_takes_the_gain_away():
    """Where operations decide, each verified token costs a token."""
    draft = block(presets.QWEN3_8B, 5, 7)
    few, many = (gain(ONE, presets.QWEN3_8B, draft, n, 64, 0.5).speedup for n in (1, 1024))
    assert few > 1.2 and many < 1.0


def test_experts_make_verifying_dearer():
    """At one stream eight rows of a dense model cost as one, those of a mixture do not."""
    dense, mixed = (
        pass_seconds(ONE, model, 1, 8, 0) / pass_seconds(ONE, model, 1, 1, 0)
        for model in (presets.QWEN3_8B, presets.QWEN3_CODER)
    )
    shared = pass_seconds(ONE, presets.QWEN3_CODER, 1, 8, 0, shared=True)
    assert dense < 1.01 and mixed > 1.5
    assert shared < pass_seconds(ONE, presets.QWEN3_CODER, 1, 8, 0)


def test_price():
    """research's example: 90 tokens a second on eight GPUs of 2.50 dollars are 61.73 a million."""
    assert price_per_million(EIGHT, 2.5, 90.0) == pytest.approx(61.73, abs=0.01)


def asked(**changes: Any) -> Ask:
    preset = presets.model("qwen3-8b")
    base = Ask(
        preset, preset.draft, preset.draft_path, ONE, 4096, 1, (0.8, 0.8), "test", False, None
    )
    return replace(base, **changes)


def test_the_verdict_follows_the_acceptance():
    assert plan(asked())["verdict"].endswith("speculation pays")
    assert plan(asked(assumed=True))["verdict"].endswith("if acceptance is as assumed")
    assert plan(asked(rates=(0.02, 0.02)))["verdict"].endswith("speculation does not pay")
    assert plan(asked(rates=(0.02, 0.8)))["verdict"].endswith("depends")
    assert "does not fit" in plan(asked(context=10_000_000))["verdict"]
    assert "--speculative-algorithm DSPARK" in plan(asked())["flags"]["sglang"]
    assert "speculative" not in plan(asked(rates=(0.02, 0.02)))["flags"]["vllm"].split("--per")[0]


def test_simulated_rows_are_passed_on():
    seen = []

    def simulator(found: Any) -> list[dict[str, Any]]:
        seen.append(found)
        return [{"concurrency": 1}]

    document = plan(asked(), simulator)
    assert document["simulated"] == [{"concurrency": 1}]
    most = document["memory"]["with_draft"]["requests"]
    assert seen[0].rates == (0.8,) * 7 and list(seen[0].widths) == [1, 4, 16, 64, most]
    slower = plan(asked(), lambda _: [{"concurrency": 4, "adaptive_over_off": 0.9}])
    assert any("slower than plain" in reason for reason in slower["reasons"])
    assert list(seen[0].seconds_at) == sorted(seen[0].seconds_at)


def test_anchors_are_within_what_the_page_says():
    errors = {one.what: one.error for one in anchors()}
    assert all(abs(error) < 0.25 for what, error in errors.items() if "high" not in what), errors


def written(tmp_path: Path, **changes: Any) -> Path:
    fields = {
        "hidden_size": 4096,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "intermediate_size": 12288,
        "vocab_size": 151936,
    }
    path = tmp_path / "config.json"
    path.write_text(json.dumps(fields | changes))
    return path


def test_a_config_of_ones_own(tmp_path: Path):
    assert read(written(tmp_path)).total_params == presets.QWEN3_8B.total_params
    latent = written(
        tmp_path, kv_lora_rank=512, qk_rope_head_dim=64, qk_nope_head_dim=128, v_head_dim=128
    )
    assert read(latent).kv_token_bytes() == 36 * 576 * 2
    assert read(written(tmp_path, quantization_config={"quant_method": "fp8"})).weight_bytes == 1.0
    for changes, said in (
        ({"vocab_size": None}, "vocab_size"),
        ({"quantization_config": {"quant_method": "q"}}, "quant_method"),
    ):
        with pytest.raises(PlanError, match=said):
            read(written(tmp_path, **changes))


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "plan.json"
    words = ["plan", "--model", "qwen3-8b", "--draft", "none", "--json", str(out)]
    assert cli.main(words) == 0
    assert "no draft asked for" in capsys.readouterr().out
    assert json.loads(out.read_text())["model"] == "Qwen3-8B"
    assert cli.main(["plan", "--model", "llama-3.1-70b", "--draft", "none"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--model", "nonsense"], "--model"),
        (["--model", "qwen3-8b", "--gpu", "T4"], "--gpu"),
        (["--model", "qwen3-8b", "--gpus", "0"], "--gpus"),
        (["--model", "qwen3-8b", "--gpus", "3"], "--gpus"),  # 32 heads
        (["--model", "qwen3-8b", "--price", "nan"], "--price"),
        (["--model", "qwen3-8b", "--price", "-1"], "--price"),
        (["--model", "qwen3-8b", "--acceptance", "1.5"], "--acceptance"),
        (["--model", "qwen3-8b", "--draft", "llama-3.1-70b"], "tokenizer"),
        (["--model", "qwen3-8b", "--draft", "dspark:x"], "--draft"),
    ],
)
def test_bad_input_is_named(words: list[str], said: str, capsys: pytest.CaptureFixture[str]):
    assert cli.main(["plan", *words]) == 2
    assert said in capsys.readouterr().err


def test_the_docs_show_what_is_said_today(capsys: pytest.CaptureFixture[str]):
    """Each plan of docs/plan.md, but for the simulated table (the scheduler's own, which changes
    with it) and the basis."""
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    shown = re.findall(r"^## `agentspec (plan [^`]*)`\n\n```text\n(.*?)^```", page, re.M | re.S)
    assert len(shown) == 5
    for command, told in shown:
        parser = argparse.ArgumentParser()
        add_parser(parser.add_subparsers())
        args = parser.parse_args(shlex.split(command))
        assert args.run(args) == 0
        said = capsys.readouterr().out.partition("\nAnchors (")[0]
        table = r"^This project's scheduler, simulated.*?\n\n|^- Simulated at [^\n]*\n"
        assert re.sub(table, "", told, flags=re.M | re.S) == said


def shown_commands() -> list[list[str]]:
    """The commands of docs/plan.md, but for the one whose model is the reader's own file."""
    page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text()
    lines = page.partition("```sh\n")[2].partition("```")[0].splitlines()
    return [line.split()[1:] for line in lines if "config.json" not in line]


@pytest.mark.parametrize("command", shown_commands(), ids=" ".join)
def test_the_page_s_commands_run(command: list[str], capsys: pytest.CaptureFixture[str]):
    assert cli.main(command) == 0
    assert "Verdict: fits" in capsys.readouterr().out


def test_a_draft_that_nobody_knows_is_told_of_by_its_own_option():
    with pytest.raises(PlanError, match=r"--draft: 'Llama-9' is neither a file nor .*Llama-3.1-8B"):
        presets.draft("Llama-9", presets.LLAMA_70B)


@pytest.mark.parametrize(
    ("model", "served"),
    [
        ("Qwen3-8B", True),
        ("Qwen3-Coder-30B-A3B", True),
        ("Llama-3.1-70B", False),  # its draft is another model
        ("gpt-oss-120B", False),
        ("DeepSeek-V4-Flash", False),
    ],
)
def test_this_engine_is_shown_for_what_it_can_serve(model: str, served: bool):
    preset = presets.model(model)
    told = flags.ours(preset.path, preset.model, preset.draft, preset.draft_path)
    assert told.startswith("[engine]") is served and ("this engine" in told) is not served


def test_what_does_not_fit_is_not_started_and_says_what_it_takes(capsys: pytest.CaptureFixture):
    """154 GB of weights: two H100 hold 144 GB in their 90 %, three share no 64 heads."""
    assert cli.main(["plan", "--model", "deepseek-v4-flash"]) == 1
    told = capsys.readouterr().out
    assert "does not fit" in told and "Without a draft it takes 4 x H100 at least." in told
    assert "Start it" not in told and "launch_server" not in told


def test_what_no_group_holds_says_so(capsys: pytest.CaptureFixture):
    assert cli.main(["plan", "--model", "llama-3.1-70b", "--context", "99000000"]) == 1
    assert "No 16 x H100" in capsys.readouterr().out
