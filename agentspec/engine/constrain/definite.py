"""Which schemas certainly judge a place of a value, and what they say of it as soon as it is there.

"Certainly": reached through properties, items, references and ``allOf`` only, not through a branch
that another branch may replace. A value that such a schema refuses can be mended by nothing that
follows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.pattern import compiled
from agentspec.toolcall.refs import is_plain, pointer

_MAX_SCHEMAS = 64
_TELLING = frozenset(
    {
        *("$dynamicRef", "$recursiveRef", "anyOf", "contains", "dependencies", "dependentRequired"),
        *("dependentSchemas", "format", "if", "maxProperties", "minProperties", "multipleOf"),
        *("not", "oneOf", "pattern", "patternProperties", "propertyNames", "unevaluatedItems"),
        *("unevaluatedProperties", "uniqueItems", "enum", "const"),
    }
)
"""Keywords that masks may not hold; a schema with none of them is not asked again."""
_KINDS = {0x22: "string", 0x7B: "object", 0x5B: "array", 0x74: "boolean", 0x66: "boolean"}
"""By a JSON value's first byte. Not here: null and numbers."""
Node = Any
Nodes = tuple[Node, ...]
"""Schemas that hold together for one value."""


def all_masked(unchecked: Iterable[str]) -> bool:
    """Whether masks hold, at every place, all keywords but the telling ones.

    unchecked: paths of keywords that they don't hold. Where a schema of keys went, so did all that
    it says of its members.
    """
    words = {path.rpartition("/")[2] for path in unchecked}
    return words <= _TELLING - {"patternProperties"}


class Definite:
    """One schema document. masked: see ``all_masked``; else every schema is asked."""

    def __init__(self, schema: Any, *, masked: bool = True):
        self._masked = masked
        self.checker = ValueChecker(schema)
        self._root = self.checker.document
        self._old = self.checker.ref_stands_alone
        self.root = self._closure([self._root])

    def _closure(self, nodes: list[Node]) -> Nodes:
        """``nodes`` with what they refer to and ``allOf``."""
        found: list[Node] = []
        while nodes and len(found) < _MAX_SCHEMAS:
            node = nodes.pop()
            if not isinstance(node, dict):
                if node is False:
                    found.append(node)
                continue
            if any(node is known for known in found):
                continue
            found.append(node)
            ref = node.get("$ref")
            if isinstance(ref, str) and is_plain(ref):
                nodes.append(pointer(self._root, ref[1:]))
                if self._old:
                    found.pop()
                    continue
            nodes.extend(node.get("allOf", ()))
        return tuple(found)

    def member(self, nodes: Nodes, key: str) -> Nodes:
        """What holds for the value of ``key`` in an object that ``nodes`` judge."""
        below: list[Node] = []
        for node in nodes:
            if not isinstance(node, dict):
                continue
            named = node.get("properties", {})
            held = [named[key]] if key in named else []
            for pattern, sub in node.get("patternProperties", {}).items():
                if compiled(pattern).search(key):
                    held.append(sub)
            if not held and "additionalProperties" in node:
                held.append(node["additionalProperties"])
            below += held
        return self._closure(below)

    def item(self, nodes: Nodes, index: int) -> Nodes:
        """What holds for an item of an array that ``nodes`` judge."""
        below: list[Node] = []
        for node in nodes:
            if not isinstance(node, dict):
                continue
            items = node.get("items", True)
            tuple_ = node.get("prefixItems", items if isinstance(items, list) else ())
            if index < len(tuple_):
                below.append(tuple_[index])
            elif isinstance(items, list):
                below.append(node.get("additionalItems", True))
            else:
                below.append(items)
        return self._closure(below)

    def refuses(self, nodes: Nodes, value: Any) -> bool:
        """Whether a whole value breaks one of ``nodes``."""
        asked = (
            node
            for node in nodes
            if not self._masked
            or node is self._root
            or node is False
            or not _TELLING.isdisjoint(node)
        )
        return any(not self.checker.holds(node, value) for node in asked)

    def refuses_start(self, nodes: Nodes, first: int) -> bool:
        """Whether no value that begins with the byte ``first`` can satisfy ``nodes``."""
        if self._masked:
            return False
        kind = _KINDS.get(first, "null" if first == 0x6E else "number")
        return any(node is False or not _may_be(node, kind) for node in nodes)

    def refuses_key(self, nodes: Nodes, key: str) -> bool:
        """Whether an object of ``nodes`` cannot have ``key``."""
        for node in nodes:
            names = node.get("propertyNames") if isinstance(node, dict) else None
            if names is not None and not self.checker.holds(names, key):
                return True
        return any(node is False for node in self.member(nodes, key))

    def silent(self, nodes: Nodes) -> bool:
        """Whether any text will do for a string that ``nodes`` judge, as far as masks allow it."""
        telling = _TELLING if self._masked else _TELLING | {"type", "minLength", "maxLength"}
        return all(isinstance(node, dict) and telling.isdisjoint(node) for node in nodes)

    @staticmethod
    def silent_on_keys(nodes: Nodes) -> bool:
        """Likewise of the keys of an object."""
        words = ("propertyNames", "patternProperties", "unevaluatedProperties")
        return all(
            isinstance(node, dict)
            and not any(word in node for word in words)
            and node.get("additionalProperties") is not False
            for node in nodes
        )

    @staticmethod
    def unique(nodes: Nodes) -> bool:
        """Whether no two items of the array may be equal."""
        return any(isinstance(node, dict) and node.get("uniqueItems") is True for node in nodes)


def _may_be(node: dict[str, Any], kind: str) -> bool:
    kinds = node.get("type")
    among = [kinds] if isinstance(kinds, str) else kinds
    return among is None or kind in among or (kind == "number" and "integer" in among)


def canonical(value: Any) -> str:
    """Equal for values that JSON Schema calls equal (1 and 1.0 are)."""
    return json.dumps(_numbers(value), sort_keys=True)


def _numbers(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_numbers(item) for item in value]
    if isinstance(value, dict):
        return {key: _numbers(item) for key, item in value.items()}
    return value
