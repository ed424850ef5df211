"""Grammar rules for values of a schema in a spelling that is not JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from .rawtext import raw_rule
from .spelling import Spelling, spelled_value
from .typed import resolved, types_of, with_definitions

_NUMBER_WORDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "$schema",
)
_STRING_WORDS = ("minLength", "maxLength", "pattern", "format", "$schema")
_NOT_HELD = (
    *("not", "if", "then", "else", "dependentSchemas", "dependentRequired", "dependencies"),
    *("contains", "uniqueItems", "minProperties", "maxProperties", "patternProperties"),
    *("propertyNames", "unevaluatedProperties", "unevaluatedItems", "$dynamicRef"),
)
_WORD = re.compile(r"[^\W\d][\w.-]*")
_MAX_ANY_DEPTH = 4


class ValueRules:
    """Rules for one tool's arguments; the first line is the rule called ``rule``."""

    def __init__(self, rule: str, schema: Any, spelling: Spelling, dump: Callable[[Any], str]):
        self.lines: list[str] = []
        self.unchecked: list[str] = []
        self._rule, self._root, self._spelling, self._dump = rule, schema, spelling, dump
        self._by_ref: dict[str, str] = {}
        self._any: str | None = None
        self._count = 0

    def arguments(self, *, keywords: bool) -> None:
        """The tool's arguments: ``a=1, b=2``, or an object with its brackets."""
        node = self._merged(resolved(self._root, self._root), "")
        spelled = (lambda key: f"{key}=") if keywords else self._spelling.key
        body = self._members(node, "", spelled, bare=keywords or self._spelling.bare_keys)
        whole = body if keywords else f'"{{" {body} "}}"'
        self.lines.insert(0, f"{self._rule}: {whole}")

    def _new(self, line: str) -> str:
        """A new rule; its name."""
        self._count += 1
        name = f"{self._rule}_v{self._count}"
        self.lines.append(f"{name}: {line}")
        return name

    def _value(self, schema: Any, path: str) -> str:
        """The name of a rule for values of a schema."""
        ref = schema.get("$ref") if isinstance(schema, Mapping) else None
        if isinstance(ref, str):
            if ref not in self._by_ref:
                self._count += 1
                name = self._by_ref[ref] = f"{self._rule}_v{self._count}"
                target = self._plain_value(resolved(schema, self._root), path)
                self.lines.append(f"{name}: {target}")
            return self._by_ref[ref]
        return self._new(self._plain_value(schema, path))

    def _plain_value(self, schema: Any, path: str) -> str:
        node = self._merged(schema, path)
        if not node:
            return self._anything()
        values = [node["const"]] if "const" in node else node.get("enum")
        if isinstance(values, list):
            return " | ".join(self._literal(value) for value in values)
        for word in ("anyOf", "oneOf"):
            if isinstance(node.get(word), list):
                rest = {k: v for k, v in node.items() if k != word}
                branches = enumerate(node[word])
                return " | ".join(
                    self._value(joined(rest, branch), f"{path}/{word}/{i}")
                    for i, branch in branches
                )
        types = types_of(node, self._root)
        if "type" not in node and ("properties" in node or "items" in node):
            types = {"object"} if "properties" in node else {"array"}
        return " | ".join(self._of_type(kind, node, path) for kind in sorted(types))

    def _merged(self, schema: Any, path: str) -> dict[str, Any]:
        """A schema with its ``allOf`` drawn in; what the rules do not hold is noted."""
        node = resolved(schema, self._root)
        node = dict(node) if isinstance(node, Mapping) else {}
        for part in node.pop("allOf", ()):
            node = joined(node, resolved(part, self._root))
            self.unchecked.append(f"{path}/allOf")
        self.unchecked += [f"{path}/{word}" for word in _NOT_HELD if word in node]
        return node

    def _literal(self, value: Any) -> str:
        return json.dumps(spelled_value(value, self._spelling))

    def _of_type(self, kind: str, node: dict[str, Any], path: str) -> str:
        if kind == "boolean":
            return " | ".join(json.dumps(word) for word in self._spelling.constants[:2])
        if kind == "null":
            return json.dumps(self._spelling.constants[2])
        if kind == "array":
            return self._array(node, path)
        if kind == "object":
            key, bare = self._spelling.key, self._spelling.bare_keys
            return f'"{{" {self._members(node, path, key, bare=bare)} "}}"'
        if kind == "string":
            return self._string(node, path)
        return self._json({"type": kind, **{k: node[k] for k in _NUMBER_WORDS if k in node}})

    def _json(self, schema: dict[str, Any]) -> str:
        return self._new(f"%json {self._dump(with_definitions(schema, {}))}")

    def _string(self, node: dict[str, Any], path: str) -> str:
        if self._spelling.escapes:
            return self._json(
                {"type": "string", **{k: node[k] for k in _STRING_WORDS if k in node}}
            )
        self._count += 1
        name = f"{self._rule}_v{self._count}"
        quote = self._spelling.quotes[0]
        raw = raw_rule(name, node, close=quote)
        self.lines += raw.lines
        self.unchecked += [path + found for found in raw.unchecked]
        return f"{json.dumps(quote)} {name}"

    def _array(self, node: dict[str, Any], path: str) -> str:
        separator = json.dumps(self._spelling.separator)
        prefix = node.get("prefixItems")
        if isinstance(prefix, list):
            items = [self._value(sub, f"{path}/prefixItems/{i}") for i, sub in enumerate(prefix)]
            self.unchecked += [f"{path}/{w}" for w in ("minItems", "maxItems") if w in node]
            return f'"[" {f" {separator} ".join(items)} "]"'
        least, most = node.get("minItems", 0), node.get("maxItems")
        if most == 0 or node.get("items") is False:
            return '"[]"'
        item = self._value(node.get("items", {}), f"{path}/items")
        more = f"({separator} {item}){{{max(0, least - 1)},{'' if most is None else most - 1}}}"
        return f'"[" {item} {more} "]"' if least else f'"[" ({item} {more})? "]"'

    def _members(
        self, node: dict[str, Any], path: str, key_text: Callable[[str], str], *, bare: bool
    ) -> str:
        """The declared members in the schema's order, a separator between, and no others. bare:
        keys stand without quotes, so that only words can be written."""
        properties = {k: v for k, v in (node.get("properties") or {}).items() if v is not False}
        required = node.get("required") or ()
        self.unchecked += [f"{path}/required/{key}" for key in required if key not in properties]
        if bare:
            odd = [key for key in properties if not _WORD.fullmatch(key)]
            self.unchecked += [f"{path}/properties/{key}" for key in odd]
            properties = {k: v for k, v in properties.items() if k not in odd}
        members = [
            (f"{json.dumps(key_text(k))} {self._value(v, f'{path}/properties/{k}')}", k in required)
            for k, v in properties.items()
        ]
        return self._sequence(members)

    def _sequence(self, members: list[tuple[str, bool]]) -> str:
        """All members in order, those not required at will, separators between those that are."""
        separator = json.dumps(self._spelling.separator)
        tail: str | None = None
        tails: list[str | None] = []
        for text, needed in reversed(members):
            tails.insert(0, tail)
            part = f"{separator} {text}" if needed else f"({separator} {text})?"
            tail = self._new(part + (f" {tail}" if tail else ""))
        options: list[str] = []
        for (text, needed), rest in zip(members, tails, strict=True):
            options.append(text + (f" {rest}" if rest else ""))
            if needed:
                break
        else:
            options.append('""')
        return options[0] if len(options) == 1 else f"({' | '.join(options)})"

    def _anything(self) -> str:
        """Any value, to a small depth."""
        if self._any is None:
            scalars = {"type": ["string", "number", "boolean", "null"]}
            inner = self._new(self._plain_value(scalars, ""))
            for _ in range(_MAX_ANY_DEPTH):
                separator = json.dumps(self._spelling.separator)
                inner = self._new(f'{inner} | "[" ({inner} ({separator} {inner})*)? "]"')
            self._any = inner
        return self._any


def joined(first: dict[str, Any], second: Any) -> dict[str, Any]:
    """Two schemas as one: properties and required of both, else the second's word counts."""
    if not isinstance(second, Mapping):
        return dict(first)
    joined = {**first, **second}
    for word in ("properties",):
        if word in first and word in second:
            joined[word] = {**first[word], **second[word]}
    if "required" in first and "required" in second:
        joined["required"] = list(dict.fromkeys([*first["required"], *second["required"]]))
    return joined
