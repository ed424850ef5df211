"""A longer window by stretched positions, against dense passes with the positions by hand."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from agentspec.engine.batch import Span
from agentspec.engine.exact_runner import ExactRunner, Unavailable
from agentspec.engine.runner import Runner
from agentspec.settings import EngineSettings, Settings, SettingsError, load
from tests.engine.model.tiny import Shape, dense, random_weights, write_folder

SHAPE = Shape(head_dim=32)
LENGTH = SHAPE.context + 40
TRUTHS = {
    "linear": replace(SHAPE, slower=2.0),
    "ntk": replace(SHAPE, theta=SHAPE.theta * 2 ** (32 / 30)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("tiny"), SHAPE, random_weights(SHAPE))


def settings(**more) -> EngineSettings:
    return EngineSettings(dtype="fp64", threads=1, kv_tokens=512, context_tokens=512, **more)


def rows(runner, tokens: list[int]) -> torch.Tensor:
    """Logits of every token, [C, V]."""
    span = Span(tokens, 0, list(range(20)), list(range(len(tokens))))
    return runner.forward([span]).logits.double()


def text() -> list[int]:
    rng = random.Random(3)
    return [rng.randrange(SHAPE.vocab) for _ in range(LENGTH)]


def test_the_window_is_the_models_unless_it_is_stretched(folder: Path):
    assert Runner.load(settings(), folder).context_tokens == SHAPE.context
    assert Runner.load(settings(rope_scale=2.5), folder).context_tokens == 240


@pytest.mark.parametrize("way", TRUTHS)
def test_stretched_positions(folder: Path, way):
    runner = Runner.load(settings(rope_scale=2.0, rope_scaling=way), folder)
    truth, _ = dense(TRUTHS[way], random_weights(SHAPE), text())
    torch.testing.assert_close(rows(runner, text()), truth, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("way", TRUTHS)
def test_the_exact_kernels_turn_by_the_same_angles(folder: Path, way):
    """Their codes differ from the float model's, so the right angles are told from wrong ones."""
    try:
        runner = ExactRunner.load(settings(rope_scale=2.0, rope_scaling=way), folder)
    except Unavailable as error:
        pytest.skip(str(error))
    assert runner.context_tokens == 2 * SHAPE.context
    ours = rows(runner, text())
    close = {}
    for name, shape in (TRUTHS | {"off": SHAPE}).items():
        truth, _ = dense(shape, random_weights(SHAPE), text())
        close[name] = float(torch.cosine_similarity(ours, truth).mean())
    assert max(close, key=lambda name: close[name]) == way
    assert close[way] > 0.9, close


def test_a_window_is_never_shrunk(tmp_path: Path):
    path = tmp_path / "s.toml"
    path.write_text("[engine]\nrope_scale = 0.5\n")
    with pytest.raises(SettingsError, match="rope_scale"):
        load(path)
    assert Settings().engine.rope_scale == 1.0
