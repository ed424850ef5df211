"""Keywords that mask engines lack, held by other words: no walk may leave the schema any more.

Truth: the jsonschema package on finished walks; nothing may be left to the check.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from .conftest import answer_spec
from .random_schemas import walked

_TEXT = {"type": "string"}
_BOTH = {"a": {"type": "integer"}, "b": _TEXT}

HELD: dict[str, dict[str, Any]] = {
    "pattern": {"type": "object", "propertyNames": {"pattern": "^x[a-c]$"}, "minProperties": 1},
    "enum": {
        "type": "object",
        "propertyNames": {"enum": ["a.b", "c"]},
        "additionalProperties": {"type": "integer"},
        "minProperties": 1,
    },
    "length": {
        "type": "object",
        "propertyNames": {"minLength": 2, "maxLength": 4},
        "additionalProperties": {"type": "null"},
        "minProperties": 1,
    },
    "declared": {"type": "object", "properties": _BOTH, "propertyNames": {"maxLength": 1}},
    "dependent": {"type": "object", "properties": _BOTH, "dependentRequired": {"a": ["b"]}},
    "undeclared": {
        "type": "object",
        "properties": _BOTH,
        "dependentRequired": {"a": ["c"], "c": ["d"]},
        "additionalProperties": {"type": "boolean"},
    },
    "tuple": {
        "type": "array",
        "items": [{"type": "integer"}, {"enum": ["x"]}],
        "additionalItems": False,
        "minItems": 2,
    },
    "types": {"oneOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}]},
}
CHECKED: dict[str, dict[str, Any]] = {
    "a declared name that is not allowed": {
        "type": "object",
        "properties": _BOTH,
        "propertyNames": {"pattern": "^a"},
    },
    "names of two rules": {"type": "object", "propertyNames": {"pattern": "^a", "maxLength": 3}},
    "a recursion that must not be demanded": {
        "type": "object",
        "properties": {"a": _TEXT, "next": {"$ref": "#"}},
        "dependentRequired": {"a": ["next"]},
    },
    "another schema judges as well": {
        "allOf": [
            {"type": "object", "properties": _BOTH, "dependentRequired": {"a": ["b"]}},
            {"type": "object", "properties": {"a": True}, "maxProperties": 1},
        ]
    },
}


@pytest.mark.parametrize("name", HELD)
def test_the_mask_holds_it(small, factories, name):
    schema = HELD[name]
    compiled = factories().compile(answer_spec(schema))
    assert compiled.unchecked == ()
    for seed in range(12):
        text, _ = walked(small, compiled.session(), random.Random(seed), 4 * seed)
        assert text is not None
        value = json.loads(text)
        if name != "tuple":
            Draft202012Validator(schema).validate(value)
        else:
            assert len(value) == 2 and isinstance(value[0], int) and value[1] == "x"


@pytest.mark.parametrize("name", CHECKED)
def test_what_stays_checked_says_so_and_still_compiles(factories, name):
    compiled = factories().compile(answer_spec(CHECKED[name]))
    assert any(p.endswith(("propertyNames", "dependentRequired")) for p in compiled.unchecked)
