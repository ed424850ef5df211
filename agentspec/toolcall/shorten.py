"""A tool list short enough for a small context: a ladder from full JSON to bare signatures."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from agentspec.wire.chat import FunctionDef

_SENTENCE = re.compile(r"(?<=[.!?])\s|\n")
_MAX_SENTENCE_CHARS = 120
_DROPPED = frozenset(
    {"description", "title", "$schema", "$comment", "examples", "default", "deprecated", "$id"}
)
_NAMED = frozenset({"properties", "patternProperties", "$defs", "definitions"})


SMALL_CONTEXT_TOKENS = 16384
UNLIMITED_CHARS = 1 << 40


def budget_chars(wanted: str, format_chars: int, context_tokens: int) -> int:
    """How many characters the tools may take in a context of that size.

    wanted: "full": any number; "short": the format's own; "auto": short below 16,384 tokens of
    context, in less than a fifth of it (at about 4 characters a token), else full.
    """
    if wanted == "full" or (wanted == "auto" and context_tokens >= SMALL_CONTEXT_TOKENS):
        return UNLIMITED_CHARS
    return min(format_chars, context_tokens * 3 // 4)


def show_tools(functions: Sequence[FunctionDef], budget_chars: int) -> str:
    """The most informative listing within ``budget_chars``; the barest one where none fits."""
    text = ""
    for rung in LADDER:
        text = rung(functions)
        if len(text) <= budget_chars:
            break
    return text


def full(functions: Sequence[FunctionDef]) -> str:
    """Everything, as a JSON list."""
    return _json([full_definition(f) for f in functions])


def brief(functions: Sequence[FunctionDef]) -> str:
    """First sentence of each description, parameters without descriptions."""
    return _json([brief_definition(f) for f in functions])


def full_definition(function: FunctionDef) -> dict[str, Any]:
    """Name, description and parameters as they are."""
    return _definition(function, function.description, function.parameters)


def brief_definition(function: FunctionDef) -> dict[str, Any]:
    """The first sentence of its description, and parameters without any."""
    return _definition(function, first_sentence(function.description), _strip(function.parameters))


def signatures(functions: Sequence[FunctionDef]) -> str:
    """One line a tool: ``name(path: string, limit?: integer): first sentence``."""
    lines = (
        f"{signature(f)}: {first_sentence(f.description)}" if f.description else signature(f)
        for f in functions
    )
    return "\n" + "\n".join(lines) + "\n"


def bare_signatures(functions: Sequence[FunctionDef]) -> str:
    """One line a tool, without descriptions."""
    return "\n" + "\n".join(signature(f) for f in functions) + "\n"


LADDER: tuple[Callable[[Sequence[FunctionDef]], str], ...] = (
    full,
    brief,
    signatures,
    bare_signatures,
)


def signature(function: FunctionDef) -> str:
    """``name(required: type, optional?: type)``."""
    schema = function.parameters or {}
    properties = schema.get("properties")
    required = schema.get("required") or ()
    if not isinstance(properties, dict):
        return f"{function.name}()"
    parts = (
        f"{key}{'' if key in required else '?'}: {type_name(value)}"
        for key, value in properties.items()
    )
    return f"{function.name}({', '.join(parts)})"


def type_name(schema: Any, depth: int = 0) -> str:
    """A schema's type in few characters; deep parts become ``any``."""
    if not isinstance(schema, dict) or depth > 2:
        return "any"
    if "const" in schema:
        return _json(schema["const"])
    if isinstance(schema.get("enum"), list):
        return "|".join(_json(value) for value in schema["enum"][:8])
    for key in ("anyOf", "oneOf"):
        if isinstance(schema.get(key), list):
            return "|".join(dict.fromkeys(type_name(s, depth + 1) for s in schema[key][:6]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return "|".join(map(str, kind))
    if kind == "array":
        return f"{type_name(schema.get('items', {}), depth + 1)}[]"
    return str(kind)


def first_sentence(text: str | None) -> str:
    """Up to the first end of a sentence or line, at most 120 characters."""
    first = _SENTENCE.split((text or "").strip(), maxsplit=1)[0].strip()
    return first if len(first) <= _MAX_SENTENCE_CHARS else first[: _MAX_SENTENCE_CHARS - 3] + "..."


def _definition(function: FunctionDef, description: str | None, parameters: Any) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": function.name}
    if description:
        shown["description"] = description
    shown["parameters"] = parameters or {"type": "object", "properties": {}}
    return shown


def _strip(schema: Any) -> Any:
    """A schema without annotations; property names that look like annotations stay."""
    if isinstance(schema, list):
        return [_strip(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _strip(sub) for name, sub in value.items()}
        if key in _NAMED and isinstance(value, dict)
        else value
        if key in ("enum", "const")
        else _strip(value)
        for key, value in schema.items()
        if key not in _DROPPED
    }


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
