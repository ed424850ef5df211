"""A tiny byte-level BPE vocabulary, trained in the test: rows can be checked by brute force."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from agentspec.engine.constrain import Constraint
from agentspec.engine.constrain.factory import ConstraintFactory
from agentspec.toolcall.choice import Answer, Function, OutputSpec
from agentspec.toolcall.format import load_format

EOS, IM_END = 0, 1
_CORPUS = [
    '[{"name": "read_file", "arguments": {"path": "src/main.py", "limit": 20}}] tool_call',
    '{"city": "Berlin", "unit": "celsius", "days": [1, 2, 3], "exact": true, "note": null}',
    "the quick brown fox reads a file and writes another file; a <tag> and a tool_call",
    '{"a": {"b": [{"c": "x"}]}, "kind": "alpha", "other": "beta"}}]}}',
] * 4


def _byte_of() -> dict[str, int]:
    """GPT-2's printable stand-ins for bytes, backwards."""
    shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = [b for b in range(256) if b not in shown]
    return {chr(b): b for b in shown} | {chr(256 + i): b for i, b in enumerate(rest)}


class Small:
    """The vocabulary and what tests ask of it."""

    def __init__(self, merges: int):
        self.tokenizer = Tokenizer(models.BPE())
        self.tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=258 + merges,
            special_tokens=["<|endoftext|>", "<|im_end|>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        self.tokenizer.train_from_iterator(_CORPUS, trainer)
        self.tokenizer.add_special_tokens([AddedToken("<|im_end|>", special=True)])
        self.size = self.tokenizer.get_vocab_size()
        back, tokens = _byte_of(), [b""] * self.size
        for text, i in self.tokenizer.get_vocab().items():
            tokens[i] = text.encode() if i <= IM_END else bytes(back[c] for c in text)
        self.token_bytes = tokens

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: list[int]) -> bytes:
        return b"".join(self.token_bytes[token] for token in tokens)

    def factory(self, **options: Any) -> ConstraintFactory:
        return ConstraintFactory(
            token_bytes=self.token_bytes,
            eos_ids=[EOS],
            special_ids=[EOS, IM_END],
            hf_tokenizer_json=self.tokenizer.to_str(),
            vocab_size=self.size,
            **options,
        )

    def rows(self, count: int) -> torch.Tensor:
        return torch.full((count, (self.size + 31) // 32), -1, dtype=torch.int32)

    def allowed(self, session: Constraint) -> set[int]:
        """The ids that the session's present row allows."""
        rows = self.rows(1)
        assert session.masks([], rows) == 0
        return bits(rows[0])


def bits(row: torch.Tensor) -> set[int]:
    """Ids set in a mask row [W] int32."""
    flags = np.unpackbits(row.numpy().view(np.uint8), bitorder="little")
    return set(np.flatnonzero(flags).tolist())


@pytest.fixture(scope="session")
def small() -> Small:
    return Small(merges=180)


@pytest.fixture(scope="session")
def factories(small: Small) -> Callable[..., ConstraintFactory]:
    """One factory per set of options, kept for the whole run."""
    made: dict[tuple, ConstraintFactory] = {}

    def get(**options: Any) -> ConstraintFactory:
        key = tuple(sorted(options.items()))
        if key not in made:
            made[key] = small.factory(**options)
        return made[key]

    return get


def answer_spec(schema: Any) -> OutputSpec:
    """A JSON answer under ``schema``."""
    fmt = load_format("smollm2")
    return OutputSpec(format=fmt, answer=Answer(schema, "response", "response_format"))


def tools_spec(tools: dict[str, Any], **options: Any) -> OutputSpec:
    """Calls of the named tools; ``options`` as in ``OutputSpec``."""
    functions = tuple(
        Function(name, schema, f"tools[{i}].function.parameters")
        for i, (name, schema) in enumerate(tools.items())
    )
    merged: dict[str, Any] = {"calls": "must", "max_calls": 3, **options}
    return OutputSpec(format=load_format("smollm2"), functions=functions, **merged)
