"""What masks cannot hold: no walk ends in a value that the whole schema refuses."""

from __future__ import annotations

import json
import logging
import random
from collections import Counter
from typing import Any

import pytest

from agentspec.engine.constrain.base import ConstraintUnmet
from agentspec.engine.constrain.judged import _MAX_TRIES, JudgedSession
from agentspec.toolcall.check import ValueChecker
from agentspec.wire.errors import InvalidSchema

from .conftest import answer_spec, tools_spec
from .random_schemas import random_schema, walked

_log = logging.getLogger(__name__)


def attempt(small, factory, seed: int) -> str:
    """One random schema, one walk cut anywhere: what became of it."""
    pick = random.Random(seed)
    schema = random_schema(pick)
    try:
        compiled = factory.compile(answer_spec(schema))
    except InvalidSchema:
        return "refused"
    try:
        text, _ = walked(small, compiled.session(), pick, pick.choice((0, 2, 6, 15, 40)))
    except ConstraintUnmet:
        text = None
    if text is None:
        assert not compiled.proven, (seed, schema)  # most of these have no value at all
        return "torn"
    assert ValueChecker(schema).check(text) is None, (seed, schema, text)
    return "right" if compiled.unchecked else "masked"


def test_random_schemas_end_right(small):
    told = Counter(attempt(small, small.factory(cache_size=1), seed) for seed in range(40))
    assert told["right"] > 10 and told["masked"] > 2


@pytest.mark.fuzz
def test_ten_thousand_random_schemas_end_right(small):
    factory = small.factory(cache_size=1)
    told: Counter[str] = Counter()
    for seed in range(10_000):
        told[attempt(small, factory, seed)] += 1
        if seed % 500 == 499:
            _log.info("%d schemas: %s", seed + 1, dict(told))
    assert told["right"] > 3000 and told["masked"] > 1000


SCHEMAS: dict[str, Any] = {
    "oneOf": {"oneOf": [{"type": "integer"}, {"type": "number"}]},
    "uniqueItems": {
        "type": "array",
        "items": {"enum": ["alpha", "beta"]},
        "uniqueItems": True,
        "minItems": 2,
    },
    "contains": {"type": "array", "items": {"type": "integer"}, "contains": {"const": 42}},
    "not": {"type": "object", "properties": {"k": {}, "l": {}}, "not": {"required": ["k"]}},
    "if": {
        "type": "object",
        "properties": {"a": {"enum": [1, 2]}, "b": {"type": "string"}},
        "if": {"properties": {"a": {"const": 1}}, "required": ["a"]},
        "then": {"required": ["b"]},
    },
    "propertyNames": {
        "type": "object",
        "additionalProperties": {"type": "integer"},
        "propertyNames": {"maxLength": 2, "pattern": "^a"},
        "minProperties": 1,
    },
    "dependentSchemas": {
        "type": "object",
        "properties": {"c": {"type": "null"}},
        "dependentSchemas": {"c": {"required": ["d"], "properties": {"d": {"const": 1}}}},
        "unevaluatedProperties": False,
    },
    "look-around": {"type": "string", "pattern": "^(?!a)[a-c]{1,3}(?<!b)$"},
    "twins": {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "minProperties": 2},
    "twins by pattern": {
        "type": "object",
        "patternProperties": {"^[ab]$": {"type": "null"}},
        "additionalProperties": False,
        "minProperties": 2,
    },
    "patterns that overlap": {
        "type": "object",
        "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}},
        "required": ["ab"],
        "additionalProperties": False,
    },
    "open bound": {"type": "number", "exclusiveMinimum": 0, "maximum": 0.5},
    "narrow members": {
        "type": "object",
        "properties": {
            "a": {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
            "b": {"type": "number", "minimum": 1, "maximum": 2, "multipleOf": 0.01},
        },
        "required": ["a", "b"],
    },
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_walk_ends_right(small, factories, name):
    compiled = factories().compile(answer_spec(SCHEMAS[name]))
    assert compiled.proven
    checker = ValueChecker(SCHEMAS[name])
    for seed in range(3):
        text, _ = walked(small, compiled.session(), random.Random(seed), 4 + 8 * seed)
        assert text is not None and checker.check(text) is None, text


def unproven(small, schema: Any) -> JudgedSession:
    """A session at its start that knows of no right end."""
    factory = small.factory()
    compiled = factory.compile(answer_spec(schema))
    proven = compiled.session()
    assert isinstance(proven, JudgedSession)
    return JudgedSession(proven._judged.copy(), proven._vocab, proven._hints)


@pytest.mark.parametrize("name", SCHEMAS)
def test_without_a_known_way_an_answer_ends_right_or_as_an_error(small, name):
    session, checker = unproven(small, SCHEMAS[name]), ValueChecker(SCHEMAS[name])
    ends: Counter[str] = Counter()
    for seed in range(6):
        try:
            text, _ = walked(small, session.clone(), random.Random(seed), 60)
        except ConstraintUnmet:
            ends["unmet"] += 1
            continue
        assert text is None or checker.check(text) is None, text
        ends["torn" if text is None else "right"] += 1
    assert ends["right"] or name == "propertyNames"  # by chance no key is one of so few


def test_what_nothing_satisfies_is_given_up_after_some_tries(small):
    schema = {"type": "array", "items": {"enum": [1, 2]}, "contains": {"const": 2}, "maxItems": 1}
    session = unproven(small, {**schema, "minItems": 1})
    session._witness = None
    session._hopes = (1 << 20, 1 << 20)  # no looking ahead
    for text in ("[", "1", "]"):
        token = small.token_bytes.index(text.encode())
        session.accept([token])
        ended = not session.viable()
    assert ended and not session.may_stop
    session.rollback(1)
    with pytest.raises(ConstraintUnmet):
        session.ban(token)


def test_calls_are_judged_one_by_one(small, factories):
    schema = {"type": "object", "properties": {"v": SCHEMAS["uniqueItems"]}, "required": ["v"]}
    spec = tools_spec({"f": schema, "g": {"type": "object"}}, max_calls=3)
    compiled = factories().compile(spec)
    assert compiled.proven
    for seed in range(4):
        text, _ = walked(small, compiled.session(), random.Random(seed), 10 * seed)
        assert text is not None
        body = text.removeprefix("<tool_call>").removesuffix("</tool_call>")
        for call in json.loads(body):
            checker = ValueChecker(schema if call["name"] == "f" else {"type": "object"})
            assert checker.check(json.dumps(call["arguments"])) is None


def test_a_place_is_tried_so_often_and_then_follows_the_known_way(small, factories):
    session = factories().compile(answer_spec(SCHEMAS["propertyNames"])).session()
    for text in ('{"',):
        for token in small.encode(text):
            session.accept([token])
            assert session.viable()
    wrong = [small.token_bytes.index(bytes([byte])) for byte in b"zyxw"]
    for count, token in enumerate(wrong):
        assert session.allows(token), "not tried yet"
        session.accept([token])
        assert not session.viable()
        session.rollback(1)
        session.ban(token)
        settled = count + 1 >= _MAX_TRIES
        assert (len(small.allowed(session)) == 1) == settled
    (way,) = small.allowed(session)
    session.accept([way])
    assert session.viable()


def test_taking_back_forgets_what_was_banned_behind(small, factories):
    session = factories().compile(answer_spec(SCHEMAS["look-around"])).session()
    quote, bad = (small.token_bytes.index(text) for text in (b'"', b"a"))
    session.accept([quote])
    assert session.viable() and session.allows(bad)
    session.accept([bad])
    assert not session.viable()
    session.rollback(1)
    session.ban(bad)
    assert not session.allows(bad) and bad not in small.allowed(session)
    twin = session.clone()
    assert not twin.allows(bad)
    session.rollback(1)
    session.accept([quote])
    assert session.allows(bad), "bans belong to a place, not to a token"
