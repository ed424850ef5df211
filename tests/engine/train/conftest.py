"""A tiny target with its vocabulary, prompts and a ``draft.toml``; nothing outside tmp_path."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentspec.engine.train.caching import cache
from agentspec.engine.train.config import DraftToml, load
from agentspec.engine.train.regenerate import regenerate
from tests.engine.model import tiny, tiny_vocabulary

SHAPE = tiny.Shape(layers=5, vocab=tiny_vocabulary.SIZE + 1, context=128)


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def write_target(path: Path, seed: int = 0) -> Path:
    tiny_vocabulary.write_folder(path)
    weights = tiny.random_weights(SHAPE, seed)
    tiny.write_folder(path, SHAPE, weights, eos_token_id=2)
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [2]}))
    return path


TOML = """
folder = "out"
[target]
weights = "target"
format = "fp32"
tool_format = "hermes"
[regenerate]
prompts = "prompts.jsonl"
temperature = 0
max_tokens = 24
min_tokens = 4
concurrency = 3
[cache]
shard_mb = 1
batch_tokens = 48
layers = [0, 2]
[draft]
block_size = 4
markov_rank = 8
[export]
[loss]
[train]
epochs = 4
batch = 4
anchors = 8
dtype = "fp32"
held_out = 0.3
threads = 1
log_s = 0
"""


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with target, prompts, answers and features, to be copied."""
    folder = tmp_path_factory.mktemp("world")
    write_target(folder / "target")
    words = ["the ring", "a thing", "in the end", "12 things", "sing", "bring it", "the king"]
    lines = [{"id": f"p{i}", "messages": [{"role": "user", "content": w}]} for i, w in
             enumerate(words)]  # fmt: skip
    (folder / "prompts.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (folder / "draft.toml").write_text(TOML)
    toml = load(folder / "draft.toml")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        regenerate(toml)
        cache(toml)
    return folder


@pytest.fixture
def write(world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DraftToml]:
    """Writes ``draft.toml`` with changed keys beside a copy of the world; returns it loaded."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shutil.copytree(world, tmp_path, dirs_exist_ok=True)

    def make(method: str | None = None, **changed: Any) -> DraftToml:
        text = TOML
        for key, value in changed.items():
            lines = [line for line in text.splitlines() if not line.startswith(f"{key} =")]
            table = _TABLE[key]
            at = lines.index(f"[{table}]") + 1
            text = "\n".join([*lines[:at], f"{key} = {json.dumps(value)}", *lines[at:]])
        (tmp_path / "draft.toml").write_text(text)
        return load(tmp_path / "draft.toml", method)

    return make


_TABLE = {
    "epochs": "train",
    "max_steps": "train",
    "held_out": "train",
    "batch": "train",
    "anchors": "train",
    "learning_rate": "train",
    "online": "cache",
    "layers": "cache",
    "ce": "loss",
    "markov_head_type": "draft",
    "init_layers": "draft",
    "vocabulary": "draft",
    "target_layers": "draft",
    "int8": "export",
    "embeddings": "export",
    "endpoint": "regenerate",
    "answers": "regenerate",
    "temperature": "regenerate",
    "device": "train",
    "block_size": "draft",
}
