"""Keys in any order, values in any spelling: the mask of the checked language, not of what is
generated.

llguidance writes declared keys in the schema's order, but takes keys of ``patternProperties`` as
they come. Declared keys become patterns here; that required ones are there, that none is there
twice and how many there are is left to the check of the finished value.
"""

from __future__ import annotations

import json
import re
from typing import Any

from agentspec.toolcall.pattern import compiled

_MAX_GROUPS = 40
"""Kinds of members told apart: that patterns are disjoint is proven pair by pair."""


def free_order(out: dict[str, Any]) -> None:
    """Rewrite the engine's version of one object schema in place; it never allows less."""
    for key in ("required", "minProperties", "maxProperties"):
        out.pop(key, None)
    properties = out.pop("properties", None)
    if not properties:
        return
    patterns = out.get("patternProperties", {})
    groups: dict[str, list[str]] = {}
    for name, sub in properties.items():
        groups.setdefault(json.dumps(sub, sort_keys=True), []).append(name)
    overlap = any(compiled(p).search(name) for p in patterns for name in properties)
    if overlap or len(groups) > _MAX_GROUPS:
        out.pop("patternProperties", None)
        out.pop("additionalProperties", None)
        return
    named = {_spelled(names): properties[names[0]] for names in groups.values()}
    out["patternProperties"] = {**patterns, **named}


def free_spelling(out: dict[str, Any]) -> None:
    """Values that are listed become values of their types: each may be written in many ways.

    That it is one of them is left to the check as well. A list that no type fits stays.
    """
    for key in ("enum", "const"):
        if key not in out:
            continue
        listed = out[key] if key == "enum" else [out[key]]
        kinds = dict.fromkeys(map(_kind, listed))
        asked = out.get("type")
        if asked is not None:
            among = {*(asked if isinstance(asked, list) else [asked])}
            among |= {"number"} if "integer" in among else set()
            kinds = dict.fromkeys(kind for kind in kinds if kind in among)
        if kinds:
            del out[key]
            out["type"] = list(kinds)


def _kind(value: Any) -> str:
    names = {bool: "boolean", type(None): "null", str: "string", list: "array", dict: "object"}
    return names.get(type(value), "number")


def _spelled(names: list[str]) -> str:
    return f"^(?:{'|'.join(map(re.escape, names))})$"
