"""What is generated lies inside the schema's language, and closings complete it.

Truth: the jsonschema package on the finished text, over random walks by masks.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match

from agentspec.wire.errors import InvalidSchema

from .conftest import EOS, answer_spec, tools_spec
from .schemas import AGENT_TOOLS

_NAMES = st.sampled_from(["a", "b", "kind", "a file", "é"])
_SCALARS = st.one_of(
    st.just({"type": "boolean"}),
    st.just({"type": "null"}),
    st.fixed_dictionaries(
        {"type": st.just("integer")},
        optional={"minimum": st.integers(-20, 0), "maximum": st.integers(1, 300)},
    ),
    st.fixed_dictionaries(
        {"type": st.just("number")}, optional={"minimum": st.sampled_from([0, -1.5])}
    ),
    st.fixed_dictionaries(
        {"type": st.just("string")},
        optional={"minLength": st.integers(0, 2), "maxLength": st.integers(2, 5)},
    ),
    st.builds(lambda p: {"type": "string", "pattern": p}, st.sampled_from(["^a+$", "b[0-9]{2}"])),
    st.builds(
        lambda v: {"enum": v}, st.lists(st.sampled_from([1, "a", None, "b\n", True]), min_size=1)
    ),
    st.just({"const": {"a": [1, "x"]}}),
)


def _objects(inner: st.SearchStrategy) -> st.SearchStrategy:
    def build(properties: dict[str, Any], count: int, extra: Any) -> dict[str, Any]:
        schema = {
            "type": "object",
            "properties": properties,
            "required": list(properties)[:count],
        }
        return schema if extra is None else {**schema, "additionalProperties": extra}

    return st.builds(
        build,
        st.dictionaries(_NAMES, inner, max_size=3),
        st.integers(0, 3),
        st.sampled_from([None, False, {"type": "integer"}]),
    )


def _arrays(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(
        lambda items, low: {"type": "array", "items": items, "minItems": low, "maxItems": low + 1},
        inner,
        st.integers(0, 2),
    )


def _combined(inner: st.SearchStrategy) -> st.SearchStrategy:
    return st.builds(
        lambda key, subs: {key: subs},
        st.sampled_from(["anyOf", "allOf", "oneOf"]),
        st.lists(inner, min_size=1, max_size=2),
    )


SCHEMAS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(_objects(inner), _arrays(inner), _combined(inner)),
    max_leaves=6,
)


def finish(small, session, seed: int, steps: int, proven: bool = True) -> str | None:
    """A random legal walk as the engine makes it, then the close-out guard; the finished text."""
    pick, out = random.Random(seed), []
    for _ in range(steps):
        if session.must_stop:
            break
        allowed = sorted(small.allowed(session) - {EOS})
        if not allowed or (session.may_stop and pick.random() < 0.2):
            break
        token = pick.choice(allowed)
        session.accept([token])
        if session.viable():
            out.append(token)
        else:
            session.rollback(1)
            session.ban(token)
    closing = session.closing(10_000)
    if closing is None and not proven:
        return None
    assert closing is not None, small.decode(out)
    session.accept(closing)
    assert session.may_stop
    return small.decode(out + closing).decode()


def judge(schema: Any, compiled: Any, text: str) -> None:
    value = json.loads(text)
    error = best_match(Draft202012Validator(schema).iter_errors(value))
    assert error is None or not compiled.proven, (schema, text, error)


@settings(max_examples=120, suppress_health_check=(HealthCheck.function_scoped_fixture,))
@given(schema=SCHEMAS, seed=st.integers(0, 999))
def test_llguidance_walks_stay_inside_the_schema(small, factories, schema, seed):
    try:
        compiled = factories().compile(answer_spec(schema))
    except InvalidSchema:
        return
    for extra in range(3):
        text = finish(small, compiled.session(), seed + extra, 4 + 9 * extra, compiled.proven)
        if text is not None:
            judge(schema, compiled, text)


@settings(max_examples=60, suppress_health_check=(HealthCheck.function_scoped_fixture,))
@given(schema=SCHEMAS, seed=st.integers(0, 999))
@example(schema={"type": "object", "properties": {"a": {}, "é": {}}}, seed=0)
def test_outlines_walks_stay_inside_the_schema(small, factories, schema, seed):
    try:
        compiled = factories(backend="outlines").compile(answer_spec(schema))
    except InvalidSchema:
        return
    for extra in range(3):
        text = finish(small, compiled.session(), seed + extra, 4 + 9 * extra, compiled.proven)
        if text is not None:
            judge(schema, compiled, text)


@pytest.mark.parametrize("name", AGENT_TOOLS)
def test_agent_tools_close_from_any_prefix(small, factories, name):
    schema = AGENT_TOOLS[name]
    compiled = factories().compile(tools_spec({name: schema}, max_calls=2))
    for seed in range(12):
        text = finish(small, compiled.session(), seed, 3 * seed)
        assert text is not None
        body = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
        for call in json.loads(body):
            assert call.keys() == {"name", "arguments"} and call["name"] == name
            judge(schema, compiled, json.dumps(call["arguments"]))


def test_an_impossible_limit_gives_none(small, factories):
    session = factories().compile(answer_spec(AGENT_TOOLS["edit"])).session()
    assert session.closing(2) is None
    closing = session.closing(200)
    assert closing and session.closing(len(closing)) is not None


def test_the_outlines_backend_compiles_plain_tools_and_refuses_loudly(factories):
    factory, refused = factories(backend="outlines"), {}
    for name, schema in AGENT_TOOLS.items():
        try:
            factory.compile(tools_spec({name: schema}, max_calls=1))
        except InvalidSchema as error:
            refused[name] = error.message
    assert refused.keys() == {"shell", "grep", "fetch", "tags"}
    assert (
        "cannot hold 'exclusiveMinimum'" in refused["shell"] and "'timeout_ms'" in refused["shell"]
    )
    assert "format 'uri'" in refused["fetch"]
