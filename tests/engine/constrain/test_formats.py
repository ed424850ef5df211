"""Constraints of every format: what the session lets through, the format's parser reads."""

from __future__ import annotations

import json
import random

import pytest

from agentspec.engine.constrain import Constraint
from agentspec.toolcall.check import ArgumentsChecker
from agentspec.toolcall.choice import Function, OutputSpec
from agentspec.toolcall.format import format_names, load_format
from agentspec.toolcall.parser import CallDropped, CallEnd, Parser
from agentspec.wire.chat import FunctionDef, Tool
from agentspec.wire.errors import InvalidRequest

from .conftest import EOS, Small

TOOLS = {
    "read": {
        "type": "object",
        "properties": {
            "path": {"type": "string", "enum": ["a.py", "b c.py"]},
            "lines": {"type": "integer", "minimum": 1, "maximum": 9},
            "deep": {"type": "boolean"},
        },
        "required": ["path"],
        "additionalProperties": False,
    },
    "ping": {"type": "object", "properties": {}, "additionalProperties": False},
}


def written(small: Small, session: Constraint, dice: random.Random) -> list[int]:
    """Tokens that a model without a will of its own writes under the constraint."""
    tokens: list[int] = []
    while not (session.must_stop or (session.may_stop and dice.random() < 0.5)):
        step = session.forced(64)
        if not step:
            step = [dice.choice(sorted(small.allowed(session) - {EOS}))]
        session.accept(step)
        tokens += step
        if len(tokens) > 300:
            closing = session.closing(300)
            assert closing is not None
            return tokens + closing
    return tokens


@pytest.mark.parametrize("name", format_names())
def test_a_session_writes_calls_that_the_parser_reads(name: str, small: Small, factories):
    fmt = load_format(name)
    functions = tuple(Function(n, schema, "tools") for n, schema in TOOLS.items())
    spec = OutputSpec(
        format=fmt, calls="must", functions=functions, max_calls=min(2, fmt.max_calls)
    )
    compiled = factories().compile(spec)
    assert compiled.unchecked == ()
    check = ArgumentsChecker(
        [Tool(function=FunctionDef(name=n, parameters=s)) for n, s in TOOLS.items()]
    )
    for seed in range(3):
        text = small.decode(written(small, compiled.session(), random.Random(seed))).decode()
        parser = Parser(fmt, TOOLS)
        events = parser.feed(text) + parser.finish()
        calls = [event for event in events if isinstance(event, CallEnd)]
        assert calls and not any(isinstance(event, CallDropped) for event in events), text
        for call in calls:
            assert check.check(call.name, call.arguments_text) is None, text
            json.loads(call.arguments_text)


@pytest.mark.parametrize("name", ["qwen3_coder", "pythonic", "llama3_json", "gemma4"])
def test_the_outlines_backend_refuses_what_it_cannot_write(name: str, factories):
    functions = (Function("ping", TOOLS["ping"], "tools"),)
    spec = OutputSpec(format=load_format(name), calls="must", functions=functions)
    with pytest.raises(InvalidRequest, match=name):
        factories(backend="outlines").compile(spec)
