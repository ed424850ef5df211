"""A JSON schema narrowed to what outlines-core's regex builder really holds, and that regex.

The builder ignores many keywords silently (minimum, multipleOf, uniqueItems, siblings of anyOf, the
type beside an enum) and breaks on others (a name that needs escapes; an untyped value inside an
object; a pattern that can match a quote). Probed on 0.2.14. Whatever is not known to be held is
refused here, loudly.
"""

from __future__ import annotations

import json
import re
from typing import Any

from outlines_core import json_schema

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.dialect import modern
from agentspec.toolcall.refs import is_plain, pointer

from .productive import productive

_MAX_COST = 20_000
_MAX_REPEAT = 64
_MAX_REF_DEPTH = 3
# A character no schema text brings along: marks the places where the builder puts whitespace.
_SPACE = "\x01"
_ANNOTATIONS = frozenset(
    {
        "$anchor",
        "$comment",
        "$defs",
        "$id",
        "$schema",
        "default",
        "definitions",
        "deprecated",
        "description",
        "examples",
        "readOnly",
        "title",
        "writeOnly",
    }
)
_BY_TYPE = {
    "string": frozenset({"minLength", "maxLength", "pattern", "format"}),
    "integer": frozenset[str](),
    "number": frozenset[str](),
    "boolean": frozenset[str](),
    "null": frozenset[str](),
    "array": frozenset({"items", "minItems", "maxItems"}),
    "object": frozenset({"properties", "required", "additionalProperties"}),
}
_KEYWORDS = frozenset().union(*_BY_TYPE.values()) | {
    "$dynamicRef",
    "$recursiveRef",
    "$ref",
    "additionalItems",
    "allOf",
    "anyOf",
    "const",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "enum",
    "exclusiveMaximum",
    "exclusiveMinimum",
    "if",
    "maxContains",
    "maxProperties",
    "maximum",
    "minContains",
    "minProperties",
    "minimum",
    "multipleOf",
    "not",
    "oneOf",
    "patternProperties",
    "prefixItems",
    "propertyNames",
    "then",
    "type",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
}
_SCALARS = [{"type": name} for name in ("string", "number", "boolean", "null")]
_PLAIN_PATTERN = re.compile(
    r"(?:[A-Za-z0-9 _:;,@#%&=~!/<>'^$|?*+(){}\[\]-]|\\[dw.?*+()\[\]{}^$|/-])*"
)
_COUNTED = re.compile(r"\{(\d+)(?:,(\d*))?\}")


class Unsupported(Exception):
    """A keyword at ``path`` that outlines-core would ignore or get wrong."""

    def __init__(self, path: tuple[str, ...], reason: str):
        super().__init__(reason)
        self.path, self.reason = path, reason


def schema_regex(schema: Any) -> tuple[str, list[str]]:
    """(regex of the canonical JSON texts, unchecked paths). Raises ``Unsupported``."""
    schema = modern(schema)
    narrowing = _Narrowing(schema)
    narrowed = narrowing.node(schema, (), 0)
    if not productive(narrowed):
        raise Unsupported((), "no finite value can satisfy it")
    if narrowing.cost > _MAX_COST:
        raise Unsupported((), "its automaton would be too large")
    try:
        text = json_schema.build_regex_from_schema(json.dumps(narrowed), _SPACE)
    except ValueError as error:
        raise Unsupported((), f"outlines refuses it: {str(error).splitlines()[0][:150]}") from None
    text = text.replace(f":{_SPACE}", ": ").replace(f",{_SPACE}", ", ").replace(_SPACE, "")
    return text, narrowing.unchecked


class _Narrowing:
    """References are unrolled (a recursive one three times deep), so that no siblings get lost.

    cost: an upper bound of the regex's size with its repetitions written out.
    """

    def __init__(self, root: Any):
        self.root = root
        self.unchecked: list[str] = []
        self.cost = 0
        self._weight = 1
        self._refs: list[str] = []

    def node(self, node: Any, path: tuple[str, ...], depth: int) -> dict[str, Any]:
        self.cost += self._weight
        if self.cost > _MAX_COST or depth > 40:
            raise Unsupported(path, "its automaton would be too large")
        if node is True:
            node = {}
        if not isinstance(node, dict):
            raise Unsupported(path, "a schema that allows nothing")
        used = {key: value for key, value in node.items() if key not in _ANNOTATIONS}
        if not used:
            # Any scalar: smaller than any value, but regular.
            return {"anyOf": _SCALARS}
        if "$ref" in used:
            return self.reference(used, path, depth)
        if "enum" in used or "const" in used:
            return self.values(node, used, path)
        for key in ("anyOf", "oneOf"):
            if key in used:
                return self.either(key, used, path, depth)
        return self.typed(used, path, depth)

    def reference(self, used: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        ref = used["$ref"]
        self.only(used, {"$ref"}, path)
        if not is_plain(ref):
            raise Unsupported((*path, "$ref"), "only references by pointer are supported")
        if self._refs.count(ref) >= _MAX_REF_DEPTH:
            raise Unsupported((*path, "$ref"), "recursion that cannot be cut off")
        self._refs.append(ref)
        try:
            return self.node(pointer(self.root, ref[1:]), path, depth + 1)
        finally:
            self._refs.pop()

    def values(self, node: dict[str, Any], used: dict[str, Any], path: tuple[str, ...]) -> Any:
        """An enum of the values that the sibling keywords allow as well."""
        listed = used["enum"] if "enum" in used else [used["const"]]
        if any("$ref" in json.dumps(value) for value in (node,)):
            raise Unsupported(path, "a reference beside an enum")
        checker = ValueChecker(node)
        kept = [value for value in listed if checker.check(json.dumps(value)) is None]
        if not kept:
            raise Unsupported((*path, "enum"), "no listed value is allowed")
        self.cost += self._weight * len(json.dumps(kept))
        return {"enum": kept}

    def either(self, key: str, used: dict[str, Any], path: tuple[str, ...], depth: int) -> Any:
        self.only(used, {key}, path)
        if key == "oneOf":
            self.unchecked.append("/" + "/".join((*path, key)))
        branches = []
        for i, sub in enumerate(used[key]):
            try:
                branches.append(self.node(sub, (*path, key, str(i)), depth + 1))
            except Unsupported as unsupported:
                # A branch may end a recursion; what stays is a smaller language.
                if "recursion" not in unsupported.reason:
                    raise
        if not branches:
            raise Unsupported((*path, key), "recursion that cannot be cut off")
        return {"anyOf": branches}

    def typed(self, used: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        kinds = used.get("type")
        if kinds is None:
            kinds = "object" if "properties" in used else None
        if kinds is None:
            raise Unsupported(path, "a schema without 'type'")
        names = kinds if isinstance(kinds, list) else [kinds]
        self.only(used, {"type"} | set().union(*(_BY_TYPE[name] for name in names)), path)
        made = [self.one_type(name, used, path, depth) for name in dict.fromkeys(names)]
        return made[0] if len(made) == 1 else {"anyOf": made}

    def one_type(self, name: str, used: dict[str, Any], path: tuple[str, ...], depth: int) -> Any:
        if name == "string":
            return self.string(used, path)
        if name == "array":
            return self.array(used, path, depth)
        if name == "object":
            return self.object(used, path, depth)
        return {"type": name}

    def string(self, used: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
        out = {key: used[key] for key in _BY_TYPE["string"] if key in used}
        if (
            len({"pattern", "format"} & out.keys()) + bool({"minLength", "maxLength"} & out.keys())
            > 1
        ):
            raise Unsupported(path, "more than one of pattern, format and length on one string")
        if out.get("format", "uuid") not in ("uuid", "date"):
            raise Unsupported((*path, "format"), f"format '{out['format']}' is not supported")
        if out.get("format") == "date":
            self.unchecked.append("/" + "/".join((*path, "format")))
        if "pattern" in out:
            out["pattern"] = self.pattern(out["pattern"], path)
        length = max(out.get("minLength", 0), out.get("maxLength", 0))
        self.cost += self._weight * length
        return {"type": "string", **out}

    def pattern(self, pattern: str, path: tuple[str, ...]) -> str:
        """A pattern that matches plain text only; outlines anchors it: a smaller language."""
        inside = pattern.removeprefix("^").removesuffix("$")
        plain = _PLAIN_PATTERN.fullmatch(pattern) and not re.search(r"\[\^|\(\?|[\^$]", inside)
        if not plain or ("|" in pattern and pattern != inside):
            raise Unsupported((*path, "pattern"), "only plain patterns are supported")
        size = 1
        for low, high in _COUNTED.findall(inside):
            size *= max(int(low), int(high or 0), 1)
        if size > _MAX_REPEAT:
            raise Unsupported((*path, "pattern"), "its automaton would be too large")
        self.cost += self._weight * size * len(inside)
        return inside.replace(r"\d", "[0-9]").replace(r"\w", "[A-Za-z0-9_]")

    def array(self, used: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        out: dict[str, Any] = {"type": "array"}
        out |= {key: int(used[key]) for key in ("minItems", "maxItems") if key in used}
        times = max(out.get("minItems", 0), out.get("maxItems", 0), 1)
        self._weight *= times
        try:
            items = used.get("items", True)
            if items is False:
                return {"enum": [[]]}
            out["items"] = self.node(items, (*path, "items"), depth + 1)
        except Unsupported as unsupported:
            if "recursion" not in unsupported.reason or out.get("minItems", 0):
                raise
            return {"enum": [[]]}
        finally:
            self._weight //= times
        return out

    def object(self, used: dict[str, Any], path: tuple[str, ...], depth: int) -> dict[str, Any]:
        properties, required = used.get("properties", {}), used.get("required", [])
        if not set(required) <= properties.keys():
            raise Unsupported((*path, "required"), "a required key that is not among properties")
        additional = used.get("additionalProperties", True)
        if not properties and additional is not False and "properties" not in used:
            value = self.node(additional, (*path, "additionalProperties"), depth + 1)
            return {"type": "object", "additionalProperties": value}
        kept: dict[str, Any] = {}
        for name, sub in properties.items():
            where = (*path, "properties", name)
            if json.dumps(name, ensure_ascii=False)[1:-1] != name or not name.isprintable():
                raise Unsupported(where, "a name that needs escapes")
            try:
                kept[name] = self.node(sub, where, depth + 1)
            except Unsupported as unsupported:
                if "recursion" not in unsupported.reason or name in required:
                    raise
        return {"type": "object", "properties": kept, "required": list(dict.fromkeys(required))}

    @staticmethod
    def only(used: dict[str, Any], known: set[str], path: tuple[str, ...]) -> None:
        """Unknown words are annotations; known keywords that are not held here are refused."""
        for key in used:
            if key in _KEYWORDS and key not in known:
                raise Unsupported((*path, key), f"the outlines backend cannot hold '{key}' here")
