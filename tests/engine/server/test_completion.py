"""Prompts of text completions: as they stand, or with the marks of fill-in-the-middle."""

from __future__ import annotations

import pytest

from agentspec.engine.completion import completion_prompt
from agentspec.wire.errors import InvalidRequest

MARKS = {"<fim_prefix>": 1000, "<fim_suffix>": 1001, "<fim_middle>": 1002}


class Bytes:
    """A tokenizer of bytes, with special tokens or without."""

    def __init__(self, specials: dict[str, int]):
        self._specials = specials

    def encode(self, text: str, special: bool = False) -> list[int]:
        if special and text in self._specials:
            return [self._specials[text]]
        return list(text.encode())


def test_a_prompt_is_taken_as_it_stands():
    assert completion_prompt(Bytes(MARKS), "<fim_prefix>", None) == list(b"<fim_prefix>")


def test_the_middle_is_asked_for_where_the_model_has_the_tokens():
    assert completion_prompt(Bytes(MARKS), "ab", "c") == [1000, 97, 98, 1001, 99, 1002]


@pytest.mark.parametrize(("text", "suffix", "param"), [("a", "b", "suffix"), ("", None, "prompt")])
def test_what_cannot_be_served_is_refused(text, suffix, param):
    with pytest.raises(InvalidRequest) as caught:
        completion_prompt(Bytes({}), text, suffix)
    assert caught.value.param == param
