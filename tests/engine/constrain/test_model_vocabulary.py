"""The embedded model's own vocabulary: canonical tokens, crossing the trigger, closing."""

from __future__ import annotations

import json
import random

import pytest
import torch

from agentspec.engine.constrain.factory import ConstraintFactory
from agentspec.engine.tokenizer import Tokenizer
from agentspec.toolcall.format import load_format
from agentspec.toolcall.parser import CallEnd, Parser

from .conftest import bits, tools_spec
from .schemas import AGENT_TOOLS

pytestmark = pytest.mark.model

TEXT = (
    '<tool_call>[{"name": "read_file", "arguments": {"path": "src/app.py", "limit": 20}}, '
    '{"name": "todo_write", "arguments": {"todos": [{"content": "x", "status": "pending"}]}}]'
    "</tool_call>"
)


@pytest.fixture(scope="module")
def tokenizer(model_path):
    return Tokenizer.load(model_path)


@pytest.fixture(scope="module")
def factory(tokenizer):
    return ConstraintFactory(
        token_bytes=tokenizer.token_bytes,
        eos_ids=tokenizer.eos_ids,
        special_ids=tokenizer.special_ids,
        hf_tokenizer_json=tokenizer.hf.to_str(),
        vocab_size=tokenizer.vocab_size,
    )


def test_forced_spans_are_the_tokenizers_own(tokenizer, factory):
    session = factory.compile(tools_spec(AGENT_TOOLS)).session()
    ids, position, forced_tokens = tokenizer.encode(TEXT), 0, 0
    while position < len(ids):
        forced = session.forced(99)
        assert forced == ids[position : position + len(forced)]
        step = forced or [ids[position]]
        forced_tokens += len(forced)
        session.accept(step)
        position += len(step)
    assert session.must_stop and forced_tokens >= len(ids) // 2


def test_a_draft_across_the_trigger(tokenizer, factory):
    session = factory.compile(tools_spec(AGENT_TOOLS, calls="may")).session()
    draft = tokenizer.encode("Let me look. " + TEXT)
    rows = torch.zeros((len(draft) + 1, (tokenizer.vocab_size + 31) // 32), dtype=torch.int32)
    assert session.masks(draft, rows) == len(draft)
    assert bits(rows[-1]) == set(tokenizer.eos_ids)
    assert len(bits(rows[0])) == tokenizer.vocab_size


def test_random_walks_close_into_valid_calls(tokenizer, factory):
    compiled = factory.compile(tools_spec(AGENT_TOOLS, max_calls=2))
    rows = torch.zeros((1, (tokenizer.vocab_size + 31) // 32), dtype=torch.int32)
    for seed in range(10):
        pick, session, out = random.Random(seed), compiled.session(), []
        for _ in range(4 * seed):
            if session.must_stop:
                break
            session.masks([], rows)
            token = pick.choice(sorted(bits(rows[0]) - tokenizer.eos_ids))
            session.accept([token])
            out.append(token)
        closing = session.closing(150)
        assert closing is not None
        session.accept(closing)
        parser = Parser(load_format("smollm2"))
        events = parser.feed(tokenizer.decode(out + closing)) + parser.finish()
        ends = [event for event in events if isinstance(event, CallEnd)]
        assert ends and all(isinstance(json.loads(end.arguments_text), dict) for end in ends)
