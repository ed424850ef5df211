"""Which draft of JSON Schema a schema speaks, and older spellings in today's words.

A schema without ``$schema`` is 2020-12, except that clients send the tuples of draft-07
(``items: [..]``) and the boolean bounds of draft-04 (``exclusiveMinimum: true``) without naming
them, and OpenAPI's ``nullable``: all are read for what they mean, by the mask and by the check
alike.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any

from jsonschema import (
    Draft4Validator,
    Draft6Validator,
    Draft7Validator,
    Draft201909Validator,
    Draft202012Validator,
    FormatChecker,
)
from jsonschema.exceptions import best_match

from .refs import is_plain, pointer

_BASES: dict[str, Any] = {
    "json-schema.org/draft-04/schema": Draft4Validator,
    "json-schema.org/draft-06/schema": Draft6Validator,
    "json-schema.org/draft-07/schema": Draft7Validator,
    "json-schema.org/draft/2019-09/schema": Draft201909Validator,
    "json-schema.org/draft/2020-12/schema": Draft202012Validator,
}
_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems", "items")
_SINGLES = (
    *("additionalProperties", "additionalItems", "contains", "else", "if", "items", "not"),
    *("propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"),
)
_LITERAL = frozenset({"enum", "const", "default", "examples", "required"})
_SAYS = frozenset({"type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf", "not", "if"})
"""Keywords that null may not satisfy."""
_TUPLE_REF = re.compile(r"/items/(\d+)(?=/|$)")
_CACHED_CHARS = 32_768


def base_of(draft: Any) -> Any:
    """The validator class of a ``$schema`` value (None: 2020-12), or None for an unknown one."""
    if draft is None:
        return Draft202012Validator
    if not isinstance(draft, str):
        return None
    return _BASES.get(re.sub(r"^https?://", "", draft).rstrip("#"))


def normal(schema: Any) -> tuple[Any, Any]:
    """(validator class, the schema as that class reads it). The class of an unknown draft: 2020-12.

    ``$schema`` is left out: ``jsonschema`` would take it as an order to change the class midway.
    """
    named = isinstance(schema, dict) and "$schema" in schema
    base = base_of(schema["$schema"]) if named else Draft202012Validator
    return base or Draft202012Validator, _Rewriting(schema, modern=not named).run()


def modern(schema: Any) -> Any:
    """``schema`` with tuples as ``prefixItems`` and bounds as numbers, whatever its draft."""
    return _Rewriting(schema, modern=True).run()


def metaschema_error(schema: Any, text: str) -> tuple[tuple[str, ...], str] | None:
    """(path, reason) where a schema breaks its draft's metaschema. ``text``: its JSON."""
    if len(text) <= _CACHED_CHARS:
        return _cached_error(text)
    return _large_error(schema)


def _large_error(schema: Any) -> tuple[tuple[str, ...], str] | None:
    """The same of a large schema: each distinct subschema once, without what is below it."""
    named = (
        {"$schema": schema["$schema"]} if isinstance(schema, dict) and "$schema" in schema else {}
    )
    stack: list[tuple[Any, tuple[str, ...]]] = [(schema, ())]
    while stack:
        node, path = stack.pop()
        if not isinstance(node, dict):
            continue
        below: list[tuple[Any, tuple[str, ...]]] = []
        alone = {key: _emptied(key, value, path, below) for key, value in node.items()}
        if error := _cached_error(json.dumps({**named, **alone})):
            return (*path, *error[0]), error[1]
        stack += below
    return None


def _emptied(
    key: str, value: Any, path: tuple[str, ...], below: list[tuple[Any, tuple[str, ...]]]
) -> Any:
    """A keyword's value with nothing in its subschemas, which are added to ``below``."""
    if key in _MAPS and isinstance(value, dict):
        below += [(sub, (*path, key, name)) for name, sub in value.items()]
        return {} if all(isinstance(sub, dict | bool) for sub in value.values()) else value
    if key in _LISTS and isinstance(value, list) and value:
        below += [(sub, (*path, key, str(i))) for i, sub in enumerate(value)]
        return [{}] if all(isinstance(sub, dict | bool) for sub in value) else value
    if key in _SINGLES and isinstance(value, dict):
        below.append((value, (*path, key)))
        return {}
    return value


@lru_cache(maxsize=512)
def _cached_error(text: str) -> tuple[tuple[str, ...], str] | None:
    return _metaschema_error(json.loads(text))


def _metaschema_error(schema: Any) -> tuple[tuple[str, ...], str] | None:
    base, document = normal(schema)
    judge = base(base.META_SCHEMA, format_checker=FormatChecker(formats=()))
    error = best_match(judge.iter_errors(document))
    if error is None:
        return None
    return tuple(map(str, error.absolute_path)), error.message[:200]


class _Rewriting:
    """A copy of a document, rewritten at its schema positions only."""

    def __init__(self, root: Any, *, modern: bool):
        self.root, self.modern = root, modern

    def run(self) -> Any:
        return self.node(self.root)

    def node(self, node: Any) -> Any:
        if isinstance(node, list):
            return [self.node(sub) for sub in node]
        if not isinstance(node, dict):
            return node
        out = {key: self.value(key, value) for key, value in node.items() if key != "$schema"}
        if self.modern:
            self.tuples(out)
            _bounds(out)
        return _with_null(out) if out.pop("nullable", None) is True else out

    def value(self, key: str, value: Any) -> Any:
        if key in _MAPS or key == "dependencies":
            if isinstance(value, dict):
                return {name: self.node(sub) for name, sub in value.items()}
            return value
        if key == "$ref" and self.modern and isinstance(value, str) and is_plain(value):
            return _TUPLE_REF.sub(self.moved, value)
        return value if key in _LITERAL else self.node(value)

    def moved(self, found: re.Match[str]) -> str:
        """A step into a tuple, where it really is one."""
        held = pointer(self.root, found.string[1 : found.start()] + "/items")
        return f"/prefixItems/{found.group(1)}" if isinstance(held, list) else found.group()

    @staticmethod
    def tuples(out: dict[str, Any]) -> None:
        if not isinstance(out.get("items"), list):
            return
        prefix = out.pop("items")
        if prefix:
            out.setdefault("prefixItems", prefix)
        if "additionalItems" in out:
            out["items"] = out.pop("additionalItems")


def _with_null(out: dict[str, Any]) -> dict[str, Any]:
    """OpenAPI 3.0: ``nullable`` lets null pass beside what the schema says."""
    if not out.keys() & _SAYS:
        return out
    if not out.keys() & _SAYS - {"type", "enum"}:
        kinds = out.get("type", [])
        kinds = kinds if isinstance(kinds, list) else [kinds]
        if kinds:
            out["type"] = kinds if "null" in kinds else [*kinds, "null"]
        if isinstance(out.get("enum"), list) and None not in out["enum"]:
            out["enum"] = [*out["enum"], None]
        return out
    return {"anyOf": [out, {"type": "null"}]}


def _bounds(out: dict[str, Any]) -> None:
    """Draft-04: a boolean says whether the bound beside it is exclusive."""
    for exclusive, bound in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(out.get(exclusive), bool):
            holds = out.pop(exclusive)
            if holds and bound in out:
                out[exclusive] = out.pop(bound)
