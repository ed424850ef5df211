"""``propertyNames`` in words that mask engines know: patterns of keys, and nothing else allowed.

Exact, not smaller, where an object declares no properties. Where it declares some, it is only held
if the object is closed and every declared name is allowed.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.pattern import plain_part

_WORDS = ("pattern", "enum", "const", "minLength", "maxLength")
_SILENT = frozenset({"type", "description", "title", "$comment", "default", "examples"})
_OTHERS = ("patternProperties", "unevaluatedProperties", "allOf", "anyOf", "oneOf", "$ref", "if")


def names_held(node: dict[str, Any], closable: bool) -> bool:
    """Whether the mask can hold ``node``'s ``propertyNames``. ``closable``: the object may be
    closed, since no other schema judges the same value.
    """
    names = node["propertyNames"]
    if names_pattern(names) is None or any(key in node for key in _OTHERS):
        return False
    declared = node.get("properties") or {}
    if not declared:
        return True
    closed = node.get("additionalProperties") is False or (
        closable and "additionalProperties" not in node
    )
    if not closed or not set(node.get("required", ())) <= declared.keys():
        return False
    checker = ValueChecker(names)
    return all(checker.check(json.dumps(name)) is None for name in declared)


def open_to_keys(node: dict[str, Any]) -> bool:
    """Whether an object may have keys that it does not list: a mask lets those come twice."""
    patterns = node.get("patternProperties", {})
    others = node.get("additionalProperties")
    return others is not False or any(sub is not False for sub in patterns.values())


def name_patterns(node: dict[str, Any], out: dict[str, Any]) -> None:
    """Write ``node``'s ``propertyNames``, which can be held, into the engine's version ``out``."""
    if not node.get("properties"):
        pattern = names_pattern(node["propertyNames"])
        assert pattern is not None
        others = out.get("additionalProperties", True)
        if others is not False:
            out["patternProperties"] = {pattern: others}
    out["additionalProperties"] = False


def names_pattern(names: Any) -> str | None:
    """The one pattern that says what ``names`` says of a string, or None."""
    if not isinstance(names, dict) or names.get("type", "string") != "string":
        return None
    used = [key for key in names if key not in _SILENT]
    if not set(used) <= set(_WORDS) or (len(used) != 1 and set(used) != {"minLength", "maxLength"}):
        return None
    if "pattern" in names:
        pattern, exact = plain_part(names["pattern"])
        return pattern if exact else None
    if "enum" in names or "const" in names:
        listed = names["enum"] if "enum" in names else [names["const"]]
        texts = [re.escape(name) for name in listed if isinstance(name, str)]
        return f"^(?:{'|'.join(texts)})$" if texts else None
    low, high = int(names.get("minLength", 0)), names.get("maxLength")
    return rf"^(?s:.{{{low},{'' if high is None else int(high)}}})$"
