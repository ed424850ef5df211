"""Documents of which it is sure, without building one, that a mask engine takes them.

Tools are mostly like that: closed objects of strings, numbers, lists and short enumerations. For
these no grammar of their own is built to see whether it can be; that is most of the time that the
grammar of a dozen tools takes.
"""

from __future__ import annotations

from typing import Any

_WORDS = frozenset({"type", "properties", "required", "additionalProperties", "items", "enum"})
_KINDS = frozenset({"string", "boolean", "null", "integer", "number", "object", "array"})
_MAX_NODES = 200
_MAX_MEMBERS = 60
_MAX_VALUES = 100
_MAX_DEPTH = 8
_MAX_CHARS = 200


def ordinary(document: Any) -> bool:
    """Whether a relaxed document surely compiles and surely has a value. Errs towards False."""
    stack = [(document, 0)]
    seen = 0
    while stack:
        node, depth = stack.pop()
        seen += 1
        if seen > _MAX_NODES or depth > _MAX_DEPTH:
            return False
        if not isinstance(node, dict) or not _WORDS.issuperset(node):
            return False
        if not (_kind(node) and _values(node) and _members(node)):
            return False
        stack.extend((sub, depth + 1) for sub in node.get("properties", {}).values())
        stack.extend((node[k], depth + 1) for k in ("items", "additionalProperties") if node.get(k))
    return True


def _kind(node: dict[str, Any]) -> bool:
    """One type or none; what is said of members and items is said of that type."""
    kind = node.get("type")
    if kind is None:
        return True
    kinds = kind if isinstance(kind, list) else [kind]
    return len(kinds) > 0 and _KINDS.issuperset(kinds) and (len(kinds) == 1 or "enum" not in node)


def _values(node: dict[str, Any]) -> bool:
    """Short texts, all of the type, and nothing else said of them."""
    if "enum" not in node:
        return True
    values = node["enum"]
    return (
        node.get("type", "string") == "string"
        and node.keys() <= {"enum", "type"}
        and 0 < len(values) <= _MAX_VALUES
        and all(map(_plain_text, values))
    )


def _members(node: dict[str, Any]) -> bool:
    properties = node.get("properties", {})
    named = all(isinstance(s, dict) for s in properties.values()) and all(
        map(_plain_text, properties)
    )
    return (
        len(properties) <= _MAX_MEMBERS
        and named
        and set(node.get("required", ())) <= set(properties)
    )


def _plain_text(text: Any) -> bool:
    return isinstance(text, str) and len(text) <= _MAX_CHARS and text.isprintable()
