"""The embedded model itself: its tokenizer, and that it answers a question."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentspec.engine.batch import Span
from agentspec.engine.runner import Runner
from agentspec.engine.tokenizer import Tokenizer
from agentspec.settings import EngineSettings

pytestmark = pytest.mark.model
ENOUGH = 24


@pytest.fixture(scope="module")
def tokenizer(model_path: Path) -> Tokenizer:
    return Tokenizer.load(model_path)


def test_what_its_tokenizer_says_of_itself(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 49152
    assert tokenizer.eos_ids == {0, 2}
    assert tokenizer.special_ids == set(range(17))
    assert tokenizer.token_bytes[2] == b"<|im_end|>"
    assert len(tokenizer.token_bytes) == 49152


@pytest.mark.parametrize(
    "text",
    (
        "def f(x):\n    return x ** 2024  # squares\n",
        '{"name": "get_weather", "arguments": {"city": "Zürich 日本", "n": -12.5}}',
        "It's 3 o'clock;\r\n\tdon't   panic.  ",
    ),
)
def test_text_comes_back_and_digits_stand_alone(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    for i in ids:
        piece = tokenizer.token_bytes[i]
        assert len(piece) == 1 or not any(48 <= byte <= 57 for byte in piece)


def test_a_prompt_is_chatml_with_its_own_system_turn(tokenizer: Tokenizer) -> None:
    """The wording is the chat template's in the checkpoint."""
    text = (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
        "<|im_end|>\n<|im_start|>user\nHi!<|im_end|>\n<|im_start|>assistant\n"
    )
    ids = tokenizer.render([{"role": "user", "content": "Hi!"}])
    assert tokenizer.decode(ids) == text
    assert ids == tokenizer.encode(text, special=True)


def test_it_knows_the_capital_of_france(model_path: Path, tokenizer: Tokenizer) -> None:
    """float32: in bf16 two words tie for the first place, which tests the model, not the engine."""
    settings = EngineSettings(dtype="fp32", threads=torch.get_num_threads(), kv_tokens=128)
    runner = Runner.load(settings, model_path)
    prompt = tokenizer.render([{"role": "user", "content": "What is the capital of France?"}])
    pages = list(range(runner.num_pages))
    answer: list[int] = []
    rows, start = prompt, 0
    while len(answer) < ENOUGH and not tokenizer.eos_ids.intersection(answer):
        logits = runner.forward([Span(rows, start, pages, [len(rows) - 1])]).logits
        start += len(rows)
        rows = [int(logits[0].argmax())]
        answer += rows
    assert "Paris" in tokenizer.decode(answer)
    assert answer[-1] in tokenizer.eos_ids
