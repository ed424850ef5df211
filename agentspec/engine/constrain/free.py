"""Objects with their keys in any order: the mask of the checked language, not of what is generated.

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


def _spelled(names: list[str]) -> str:
    return f"^(?:{'|'.join(map(re.escape, names))})$"
