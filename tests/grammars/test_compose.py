"""The grammar of a format generates what the parser reads, and reads back valid calls."""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest

from agentspec.toolcall.check import ArgumentsChecker
from agentspec.toolcall.choice import Function, OutputSpec
from agentspec.toolcall.compose import argument_rules, frame, literal
from agentspec.toolcall.format import ToolFormat, format_names, load_format
from agentspec.toolcall.parser import Parser
from agentspec.wire.chat import FunctionDef, Tool

from .samples import SAMPLES, TOOLS, Sample, read
from .sampling import Sampler

_OPTIONS = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": '"\\bfnrt',
}
HARD: dict[str, Any] = {
    "mixed": {
        "type": "object",
        "properties": {
            "level": {"type": "integer", "minimum": 2, "maximum": 40},
            "either": {"type": ["string", "integer", "null"]},
            "code": {"type": "string", "pattern": "^[a-c]{2,4}$"},
            "short": {"type": "string", "minLength": 2, "maxLength": 5},
            "mark": {"const": "x:y"},
            "pair": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
            "pick": {"anyOf": [{"type": "string", "enum": ["a", "b c"]}, {"type": "boolean"}]},
        },
        "required": ["either", "code"],
        "additionalProperties": False,
    },
    "tree": {
        "type": "object",
        "properties": {"root": {"$ref": "#/$defs/node"}},
        "required": ["root"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"type": "string", "maxLength": 4},
                    "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}, "maxItems": 2},
                },
                "required": ["name"],
                "additionalProperties": False,
            }
        },
    },
}
ALL = TOOLS | HARD


def _calls_alone(sample: Sample) -> bool:
    expected = sample.expected
    texts = expected["text"].strip() + expected.get("reasoning", "")
    return sample.good and not texts and bool(expected["calls"]) and sample.format.name != "smollm2"


BARE = [sample for sample in SAMPLES if _calls_alone(sample)]


def dump(schema: Any) -> str:
    return json.dumps({**schema, "x-guidance": _OPTIONS} if isinstance(schema, dict) else schema)


def spec(fmt: ToolFormat, tools: dict[str, Any], calls: Any = "must", most: int = 3) -> OutputSpec:
    functions = tuple(Function(name, schema, "tools") for name, schema in tools.items())
    most = min(most, fmt.max_calls)
    return OutputSpec(format=fmt, calls=calls, functions=functions, max_calls=most)


def grammar(wanted: OutputSpec) -> tuple[str, list[str]]:
    lines, unchecked = [frame(wanted)], []
    for i, function in enumerate(wanted.functions):
        rules = argument_rules(wanted.format, f"args_{i}", function.parameters, dump)
        lines += rules.lines
        unchecked += rules.unchecked
    return "\n".join([*lines, ""]), unchecked


def sampler(wanted: OutputSpec) -> Sampler:
    fmt = wanted.format
    closers = [fmt.tags.value_close if fmt.tags else ""]
    closers += list(fmt.spelling.quotes) if fmt.spelling else ['"']
    closers += ["}", "]", fmt.tail_template, fmt.list_close + fmt.close]
    closers.append(fmt.head_template.split("$name")[-1])
    return Sampler(grammar(wanted)[0], closers)


@lru_cache(maxsize=64)
def sample_grammar(name: str) -> Sampler:
    return sampler(spec(load_format(name), TOOLS))


def checker(tools: dict[str, Any]) -> ArgumentsChecker:
    return ArgumentsChecker(
        [Tool(function=FunctionDef(name=n, parameters=s)) for n, s in tools.items()]
    )


@pytest.mark.parametrize("name", format_names())
def test_what_the_grammar_generates_is_read_back_as_valid_calls(name: str):
    fmt = load_format(name)
    check = checker(ALL)
    drawn = sampler(spec(fmt, ALL))
    for seed in range(16):
        text = drawn.draw(seed)
        found = read(Parser(fmt, ALL), [text])
        assert found.dropped == 0 and found.calls, text
        assert found.text.strip() == "", text
        for call in found.calls:
            wrong = check.check(call["name"], json.dumps(call["arguments"]))
            assert wrong is None, f"{wrong}\n{text}"


@pytest.mark.parametrize("name", format_names())
def test_these_schemas_are_held_in_full(name: str):
    assert grammar(spec(load_format(name), ALL))[1] == []


@pytest.mark.parametrize("sample", BARE, ids=lambda sample: sample.id)
def test_canonical_samples_are_in_the_grammar(sample: Sample):
    """And a text that misses its last letter is not."""
    drawn = sample_grammar(sample.format.name)
    assert drawn.accepts(sample.text) == sample.expected["in_grammar"]
    assert not drawn.accepts(sample.text[:-1])


@pytest.mark.parametrize("name", ["llama3_json", "pythonic"])
def test_without_a_marker_the_first_letter_decides(name: str):
    fmt = load_format(name)
    drawn = sampler(spec(fmt, TOOLS, "may"))
    assert drawn.accepts("Plain text [with] {brackets}.")
    assert drawn.accepts("")
    assert drawn.accepts(fmt.render_calls([("ping", "{}")]))
    assert not drawn.accepts(fmt.render_calls([("ping", '{"a": 1}')]))
    assert not drawn.accepts(fmt.open + "?")


def test_tokens_of_their_own_stand_as_tokens():
    assert literal("a<x>b", {"<x>": 7}) == '"a" <[7]> "b"'
    assert literal("<x><xy>", {"<x>": 7, "<xy>": 8}) == "<[7]> <[8]>"
    assert literal("plain", {"<x>": 7}) == '"plain"'


@pytest.mark.parametrize("name", [n for n in format_names() if load_format(n).encoding != "json"])
@pytest.mark.parametrize(
    ("schema", "path"),
    [
        ({"properties": {"a": {"type": "string", "pattern": "a|\\bb"}}}, "/properties/a/pattern"),
        ({"properties": {}, "required": ["x"]}, "/required/x"),
        ({"properties": {}, "not": {}}, "/not"),
        ({"properties": {"a": {"type": "string"}}, "dependentRequired": {}}, "/dependentRequired"),
    ],
)
def test_what_is_not_held_is_named(name: str, schema: dict[str, Any], path: str):
    fmt = load_format(name)
    unchecked = argument_rules(fmt, "args_0", {"type": "object", **schema}, dump).unchecked
    escaped = fmt.spelling is not None and fmt.spelling.escapes
    assert unchecked == ([] if escaped and path.endswith("pattern") else [path])
