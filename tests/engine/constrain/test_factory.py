"""Compiling: the cache, threads, relaxed keywords, impossible and explosive schemas."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agentspec.engine.constrain.relax import LEVELS, relax
from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.choice import OutputSpec
from agentspec.toolcall.format import load_format
from agentspec.toolcall.schema import validate_schema
from agentspec.wire.errors import InvalidRequest, InvalidSchema

from .conftest import answer_spec, tools_spec
from .schemas import AGENT_TOOLS

BACKENDS = ("llguidance", "outlines")


def accepts(small, compiled: Any, text: str) -> bool:
    session = compiled.session()
    for byte in text.encode():
        token = small.token_bytes.index(bytes([byte]))
        if not session.allows(token):
            return False
        session.accept([token])
    return session.may_stop


def test_equal_specs_are_compiled_once(small):
    factory = small.factory(cache_size=2)
    first = factory.compile(answer_spec(AGENT_TOOLS["edit"]))
    assert first.cold and first.compile_us > 0
    again = factory.compile(answer_spec(dict(AGENT_TOOLS["edit"])))
    assert again is first and not again.cold
    reordered = {"type": "object", "properties": {"b": {"type": "null"}, "a": {"type": "null"}}}
    ordered = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}}
    assert factory.compile(answer_spec(reordered)) is not factory.compile(answer_spec(ordered))
    assert factory.compile(answer_spec(AGENT_TOOLS["edit"])) is not first, "evicted by two others"


def test_threads_share_one_compilation(small):
    factory, results = small.factory(), []
    spec = tools_spec(AGENT_TOOLS)
    threads = [
        threading.Thread(target=lambda: results.append(factory.compile(spec))) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 6 and len(set(map(id, results))) == 1


def test_all_agent_tools_compile_together(factories):
    compiled = factories().compile(tools_spec(AGENT_TOOLS))
    assert compiled.unchecked == ("tools.tags#/properties/tags/uniqueItems",)


@pytest.mark.parametrize(
    ("schema", "unchecked", "accepted"),
    [
        (
            {"type": "array", "uniqueItems": True, "items": {"type": "null"}},
            "uniqueItems",
            "[null, null]",
        ),
        ({"type": "integer", "not": {"const": 3}}, "not", "3"),
        ({"type": "string", "pattern": "^(?!b)[a-c]$"}, "pattern", '"b"'),
        ({"type": "string", "format": "regex"}, "format", '"["'),
        ({"if": {"type": "null"}, "then": False, "type": ["null", "boolean"]}, "if", "null"),
        (
            {"type": "object", "propertyNames": {"maxLength": 1, "pattern": "a"}},
            "propertyNames",
            '{"ab": 1}',
        ),
        ({"type": "array", "contains": {"const": 1}}, "contains", "[]"),
        (
            {
                "type": "object",
                "dependentRequired": {"a": ["b"]},
                "patternProperties": {"^q": True},
            },
            "dependentRequired",
            '{"a": 1}',
        ),
        ({"oneOf": [{"type": "integer"}, {"type": "number"}]}, "oneOf", "1"),
        ({"type": "integer", "multipleOf": 999983}, "multipleOf", "1"),
    ],
)
def test_what_the_mask_cannot_hold_is_recorded(small, factories, schema, unchecked, accepted):
    compiled = factories(canonical=False, judged=False).compile(answer_spec(schema))
    assert compiled.unchecked == (f"response_format#/{unchecked}",)
    assert accepts(small, compiled, accepted), "the mask alone lets it through"
    judged = factories(canonical=False).compile(answer_spec(schema))
    assert not accepts(small, judged, accepted), "but it is no end of an answer"


def test_property_names_are_no_keywords(small, factories):
    names = ["not", "if", "uniqueItems", "format", "x-guidance", "$ref"]
    schema = {
        "type": "object",
        "properties": {name: {"type": "boolean"} for name in names},
        "required": names,
        "additionalProperties": False,
    }
    compiled = factories(canonical=False).compile(answer_spec(schema))
    assert compiled.unchecked == ()
    text = "{" + ", ".join(f'"{name}": true' for name in names) + "}"
    assert accepts(small, compiled, text)
    assert not accepts(small, compiled, "{}")


def test_the_callers_schema_cannot_switch_the_engines_options(small, factories):
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": "^b$"}},
        "required": ["a"],
        "x-guidance": {"lenient": True, "whitespace_flexible": True},
    }
    compiled = factories(canonical=False).compile(answer_spec(schema))
    assert accepts(small, compiled, '{"a": "b"}')
    assert not accepts(small, compiled, '{ "a":"b" }')


def test_an_extra_key_cannot_spell_a_declared_one(small, factories):
    schema = {"properties": {"a": {"type": "null"}}, "additionalProperties": {"type": "integer"}}
    compiled = factories(canonical=False).compile(answer_spec({"type": "object", **schema}))
    assert accepts(small, compiled, '{"b": 1}')
    assert not accepts(small, compiled, '{"\\u0061": 1}')


def test_flexible_takes_the_whole_language(small, factories):
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    strict = factories(canonical=False).compile(answer_spec(schema))
    flexible = factories(canonical=False, flexible=True).compile(answer_spec(schema))
    for text in ('{"a":"x"}', '{\n "a": "\\u00e9" }', '{"a": "x", "more": [1]}'):
        assert accepts(small, flexible, text)
        assert not accepts(small, strict, text)


NESTED = {"type": "integer"}
for _ in range(60):
    NESTED = {"type": "array", "items": NESTED}
SELF = {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        SELF,
        {"anyOf": [{"$ref": "#"}, SELF]},
        {"allOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": "integer", "minimum": 3, "maximum": 2},
        {"if": {"type": "null"}, "then": False, "type": "null"},
        {"oneOf": [{"type": "boolean"}, {"type": "boolean"}]},
        {
            "type": "array",
            "items": {"enum": [1]},
            "uniqueItems": True,
            "minItems": 2,
            "maxItems": 3,
        },
        {"enum": [1, 2], "not": {"type": "integer"}},
        False,
    ],
)
def test_schemas_without_a_value_are_refused(factories, schema):
    with pytest.raises(InvalidSchema) as caught:
        factories().compile(answer_spec(schema))
    assert caught.value.param == "response_format"
    assert caught.value.message.startswith("Invalid schema")


@pytest.mark.parametrize("backend", ["llguidance", "outlines"])
@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^((a{1,900}){1,900}){1,900}$"},
        {"enum": [str(i) for i in range(20_000)]},
        NESTED,
        {"type": "string", "pattern": "^a(?=b)b$"},
        {"$ref": "https://example.com/schema.json"},
    ],
)
def test_bombs_end_in_invalid_schema(factories, backend, schema):
    with pytest.raises(InvalidSchema):
        validate_schema(schema, "response_format", "response_format 'r'")
        factories(backend=backend).compile(answer_spec(schema))


def _doubling(levels: int) -> dict[str, Any]:
    definitions: dict[str, Any] = {
        "d0": {"type": "object", "properties": {"a": {"type": "string"}}}
    }
    for i in range(1, levels):
        twice = [{"$ref": f"#/$defs/d{i - 1}"}] * 2
        definitions[f"d{i}"] = {"anyOf": [twice[0], {"allOf": twice}]}
    return {"$ref": f"#/$defs/d{levels - 1}", "$defs": definitions}


@pytest.mark.parametrize("backend", ["llguidance", "outlines"])
def test_exponential_references_are_refused(factories, backend):
    with pytest.raises(InvalidSchema):
        factories(backend=backend).compile(answer_spec(_doubling(30)))


def test_a_callers_own_grammar(small, factories):
    fmt = load_format("smollm2")
    compiled = factories(canonical=False).compile(
        OutputSpec(format=fmt, grammar='start: "yes" | "no" " "? /[0-9]+/')
    )
    assert accepts(small, compiled, "yes") and accepts(small, compiled, "no 12")
    assert not accepts(small, compiled, "no")
    for broken in ("start: (", "begin: /a/", "start: /(a/"):
        with pytest.raises(InvalidRequest) as caught:
            factories().compile(OutputSpec(format=fmt, grammar=broken))
        assert caught.value.param == "agentspec.grammar"
    with pytest.raises(InvalidRequest):
        factories(backend="outlines").compile(OutputSpec(format=fmt, grammar='start: "a"'))


def test_an_unknown_backend_is_named(small):
    with pytest.raises(ValueError, match="'magic'"):
        small.factory(backend="magic")


def test_objects_close_only_where_nothing_else_judges_them():
    part = {"type": "object", "properties": {"a": {"type": "null"}}}
    closed = {**part, "additionalProperties": False}
    assert relax(part).document == closed
    assert relax({"anyOf": [part, {"type": "null"}]}).document["anyOf"][0] == closed
    assert relax({"allOf": [part, part]}).document == {"allOf": [part, part]}
    assert relax({"oneOf": [part]}).document == {"oneOf": [part]}
    assert relax({**part, "required": ["b"]}).document == {**part, "required": ["b"]}
    assert relax({**part, "patternProperties": {}}).document == {**part, "patternProperties": {}}


def test_references_are_followed_from_wherever_they_point():
    schema = {
        "type": "object",
        "properties": {"x": {"$ref": "#/shared/a~1b"}, "y": {"$ref": "#/properties/x"}},
        "shared": {"a/b": {"type": "array", "uniqueItems": True}},
    }
    relaxed = relax(schema)
    names = {relaxed.document["properties"][key]["$ref"] for key in "xy"}
    definitions = relaxed.document["$defs"]
    assert names == {"#/$defs/r0", "#/$defs/r1"}
    assert definitions["r0"] == {"type": "array"} and definitions["r1"] == {"$ref": "#/$defs/r0"}
    assert relaxed.unchecked == ["/shared/a~1b/uniqueItems"]


def test_each_level_gives_up_more():
    schema = {
        "oneOf": [{"type": "string", "pattern": "a"}],
        "patternProperties": {"a": {}},
        "additionalProperties": False,
        "minimum": 3,
    }
    lists = [set(relax(schema, level).unchecked) for level in LEVELS if not level.narrow]
    for less, more in zip(lists[:-1], lists[1:-1], strict=False):
        assert less < more
    text = relax(schema, LEVELS[-2])
    assert text.document == {"allOf": [{"anyOf": [{"type": "string"}]}]}
    assert "/additionalProperties" in text.unchecked
    bare = relax(schema, LEVELS[-1])
    assert bare.document == {} and "/oneOf" in bare.unchecked


_COUNT = st.sampled_from([0, 1, 2.0, 5, 10**30, 1e300, -1])
_NUMBER = st.sampled_from([0, -1.5, 3, 1e300, 10**40, 0.001, True])
_KEY = st.sampled_from(["a", "b", "$ref", "type", 'q"'])
_ANY = st.sampled_from([None, True, 0, 1.5, "a", "\x07é", [], [1], {}, {"a": {"b": 1}}])


def _schemas(inner: st.SearchStrategy) -> st.SearchStrategy:
    """Keywords with values mostly of their kind, siblings at random."""
    fields = {
        "type": st.sampled_from(["object", "array", "string", "integer", ["null", "object"], "x"]),
        **dict.fromkeys(("properties", "patternProperties", "$defs"), st.dictionaries(_KEY, inner)),
        **dict.fromkeys(("minItems", "maxItems", "minLength", "minProperties"), _COUNT),
        **dict.fromkeys(("minimum", "exclusiveMaximum", "multipleOf"), _NUMBER),
        **dict.fromkeys(("anyOf", "allOf", "oneOf", "prefixItems"), st.lists(inner, max_size=3)),
        **dict.fromkeys(("additionalProperties", "items", "not", "contains", "if", "then"), inner),
        "required": st.lists(_KEY, max_size=2),
        "enum": st.lists(_ANY, max_size=3),
        "const": _ANY,
        "pattern": st.sampled_from(["a", "^a|b$", "[", "^.{3}$", "\\d+", "a{0,900}"]),
        "format": st.sampled_from(["date", "uuid", "uri", "email", "iban"]),
        "$ref": st.sampled_from(["#", "#/$defs/a", "#/properties/a", "x", "#/anyOf/0"]),
        "$id": st.sampled_from(["http://a/b", "c", "#d"]),
        "uniqueItems": st.booleans(),
    }
    pairs = [st.tuples(st.just(key), values) for key, values in fields.items()]
    return st.lists(st.one_of(pairs), max_size=4).map(dict)


_SCHEMAS = st.recursive(st.sampled_from([True, {}, {"type": "null"}]), _schemas, max_leaves=8)


@settings(max_examples=250, suppress_health_check=(HealthCheck.function_scoped_fixture,))
@given(_SCHEMAS, st.sampled_from(BACKENDS))
@example({"enum": ["\x07a", "b"]}, "llguidance")
@example({"const": "\x07"}, "llguidance")
def test_any_schema_compiles_or_is_refused(small, factories, schema, backend):
    """Nothing but ``InvalidSchema`` leaves the room, whatever JSON is sent as a schema."""
    try:
        validate_schema(schema, "response_format", "response_format 'r'")
        compiled = factories(backend=backend).compile(answer_spec(schema))
    except InvalidSchema:
        return
    session = compiled.session()
    assert small.allowed(session)
    closing = session.closing(120)
    if closing is not None:
        session.accept(closing)
        wrong = ValueChecker(schema).check(small.decode(closing).decode())
        assert wrong is None or compiled.unchecked, (schema, closing, wrong)
