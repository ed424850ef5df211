"""The close-out guard shuts what strings under patterns, formats and recursions have opened.

Truth: the jsonschema package on the closed text, with patterns and formats checked by themselves.
"""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from agentspec.toolcall.formats import format_checker
from agentspec.toolcall.parser import CallEnd, Parser

from .conftest import Small, tools_spec


def _string(**rules: Any) -> dict[str, Any]:
    return {"type": "string", **rules}


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


_NODE = {
    **_object(name=_string(), next={"anyOf": [{"$ref": "#/$defs/P"}, {"type": "null"}]}),
    "additionalProperties": False,
}
SCHEMAS: dict[str, dict[str, Any]] = {
    "unanchored": _object(a=_string(pattern="ab+c")),
    "email": _object(a=_string(format="email")),
    "uri": _object(a=_string(format="uri")),
    "keys": {
        "type": "object",
        "patternProperties": {"^x-[a-z]+$": {"type": "integer"}},
        "additionalProperties": False,
        "minProperties": 1,
    },
    "recursion": {**_object(p={"$ref": "#/$defs/P"}), "$defs": {"P": _NODE}},
}
MANY = _object(
    a=_string(pattern="ab+c"),
    b=_string(format="email"),
    c=_string(format="uri"),
    d=_string(format="date-time"),
    e=_string(pattern=r"^[A-Z]{3}-\d{4}$"),
    f=_string(format="uuid"),
)


def judge(schema: Any, arguments: str) -> None:
    checker = Draft202012Validator(schema, format_checker=format_checker())
    checker.validate(json.loads(arguments))


def arguments_of(fmt: Any, text: str) -> list[str]:
    parser = Parser(fmt)
    events = parser.feed(text) + parser.finish()
    return [event.arguments_text for event in events if isinstance(event, CallEnd)]


def _walk(small: Small, session: Any, seed: int, steps: int) -> list[int]:
    """Random legal tokens; what closes is taken only where nothing else is legal."""
    pick, out = random.Random(seed), []
    for _ in range(steps):
        allowed = sorted(small.allowed(session) - {0, 1})
        if not allowed:
            break
        inner = [t for t in allowed if not set(small.token_bytes[t]) & set(b'"}]')]
        out.append(pick.choice(inner or allowed))
        session.accept(out[-1:])
    return out


@settings(max_examples=40, deadline=None)
@given(
    name=st.sampled_from([*SCHEMAS, "many"]), seed=st.integers(0, 999), steps=st.integers(0, 120)
)
def test_a_walk_into_any_of_them_closes_validly(small, factories, name, seed, steps):
    schema = SCHEMAS.get(name, MANY)
    spec = tools_spec({"t": schema}, max_calls=1)
    session = factories().compile(spec).session()
    out = _walk(small, session, seed, steps)
    closing = session.closing(10_000)
    assert closing is not None, small.decode(out)
    session.accept(closing)
    (arguments,) = arguments_of(spec.format, small.decode(out + closing).decode(errors="replace"))
    judge(schema, arguments)


@pytest.mark.parametrize(("name", "limit"), [*((name, 45) for name in SCHEMAS), ("many", 150)])
def test_the_shortest_call_is_short(small, factories, name, limit):
    session = factories().compile(tools_spec({"t": SCHEMAS.get(name, MANY)})).session()
    assert session.closing(limit) is not None


def test_a_search_that_finds_nothing_ends_after_so_many_operations(small, factories, monkeypatch):
    """Each way out is longer than the limit, so the search turns back again and again."""
    schema = {"type": "object", "properties": {"p": {"$ref": "#/$defs/P"}}, "required": ["p"]}
    endless = _object(next={"anyOf": [{"$ref": "#/$defs/P"}, _string(pattern="^(?:[ab]{3}){99}$")]})
    schema["$defs"] = {"P": endless}
    session = factories().compile(tools_spec({"t": schema}, max_calls=1)).session()
    matcher = type(session._matcher)
    asked = 0
    legal = matcher.legal

    def counted(self: Any, token: int) -> bool:
        nonlocal asked
        asked += 1
        return legal(self, token)

    monkeypatch.setattr(matcher, "legal", counted)
    assert session.closing(200) is None
    assert 0 < asked < 6000


@pytest.mark.model
def test_the_model_never_leaves_a_call_torn(model_path):
    """Sampled at temperature 1, cut at 150 tokens (400 for the long one): finished, or shut."""
    from agentspec.engine.build import build
    from agentspec.settings import Settings
    from agentspec.wire.chat import ChatRequest, FunctionDef, Message, Tool

    built = build(Settings().engine)
    wanted: dict[str, Any] = {}
    for name, schema in {**SCHEMAS, "many": MANY}.items():
        for seed in range(1, 6):
            request = ChatRequest(
                model=built.planner.model,
                messages=[Message("user", "Use the tool with some sensible values.")],
                tools=[Tool(FunctionDef(name="t", parameters=schema))],
                tool_choice="required",
                parallel_tool_calls=False,
                temperature=1.0,
                seed=seed,
                max_tokens=400 if name == "many" else 150,
            )
            turn = built.planner.plan(request, time.monotonic())
            wanted[turn.sequences[0].id] = (schema, turn.reading.format)
            built.engine.add(turn.sequences[0])
    texts = dict.fromkeys(wanted, "")
    shut = ended = 0
    while ended < len(wanted):
        for output in built.engine.step():
            texts[output.id] += output.text
            if output.finish_reason is not None:
                ended += 1
                shut += output.closed_out
                assert output.finish_reason == "stop", (output, texts[output.id])
    assert shut, "the guard must have had something to do"
    for key, (schema, fmt) in wanted.items():
        (arguments,) = arguments_of(fmt, texts[key])
        judge(schema, arguments)
