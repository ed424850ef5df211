"""What is taken for ordinary must build and have a value: held against the engine itself."""

from __future__ import annotations

import json
import random

import llguidance
import pytest

from agentspec.engine.constrain.llguidance_backend import _CANONICAL
from agentspec.engine.constrain.ordinary import ordinary
from agentspec.engine.constrain.productive import productive
from agentspec.engine.constrain.relax import LEVELS, relax

from .conftest import EOS, Small
from .random_schemas import random_schema


@pytest.fixture(scope="module")
def tokenizer(small: Small) -> llguidance.LLTokenizer:
    return llguidance.LLTokenizer(small.tokenizer.to_str(), n_vocab=small.size, eos_token=[EOS])


def builds(tokenizer: llguidance.LLTokenizer, document: object) -> bool:
    held = {**document, "x-guidance": _CANONICAL} if isinstance(document, dict) else document
    grammar = llguidance.LLMatcher.grammar_from_lark(f"start: %json {json.dumps(held)}")
    matcher = llguidance.LLMatcher(tokenizer, grammar, log_level=0)
    matcher.compute_bitmask()
    return not matcher.is_error() and (matcher.is_accepting() or not matcher.is_stopped())


def test_ordinary_documents_build(tokenizer: llguidance.LLTokenizer):
    pick, held = random.Random(6), 0
    for _ in range(1500):
        document = relax(random_schema(pick), LEVELS[0]).document
        if ordinary(document) and productive(document):
            held += 1
            assert builds(tokenizer, document), document
    assert held > 150


@pytest.mark.parametrize(
    "document",
    [
        False,
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"type": "integer", "enum": ["a"]},
        {"enum": [], "type": "string"},
        {"type": "object", "properties": {"a": False}, "required": ["a"]},
        {"type": "object", "required": ["b"], "additionalProperties": False},
        {"type": "object", "properties": {"a\u0001": {"type": "string"}}},
        {"type": "string", "pattern": "a"},
        {"$ref": "#/$defs/r0"},
        {"type": []},
    ],
)
def test_what_may_fail_is_not_ordinary(document: object):
    assert not ordinary(document)
