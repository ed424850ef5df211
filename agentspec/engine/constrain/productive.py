"""Does a schema have a finite value at all? A schema that only recurses has none.

Constraint engines compile ``{"required": ["a"], "properties": {"a": {"$ref": "#"}}}`` happily and
would then generate ``{"a": {"a": ...`` until the budget ends.
"""

from __future__ import annotations

from typing import Any

_PREFIX = "#/$defs/"


def productive(document: Any) -> bool:
    """Whether some finite value may satisfy a relaxed document (references to its ``$defs`` only).

    Errs towards True: False is certain.
    """
    if not isinstance(document, dict):
        return document is not False
    definitions: dict[str, Any] = document.get("$defs", {})
    finite: set[str] = set()
    while True:
        more = {
            name
            for name, schema in definitions.items()
            if name not in finite and _finite(schema, finite)
        }
        if not more:
            return _finite(document, finite)
        finite |= more


def _finite(schema: Any, finite: set[str]) -> bool:
    if not isinstance(schema, dict):
        return schema is not False
    if "$ref" in schema and schema["$ref"].removeprefix(_PREFIX) not in finite:
        return False
    if not all(_finite(sub, finite) for sub in schema.get("allOf", ())):
        return False
    for key in ("anyOf", "oneOf"):
        if key in schema and not any(_finite(sub, finite) for sub in schema[key]):
            return False
    if "enum" in schema or "const" in schema:
        return True
    kinds = schema.get("type")
    if kinds == "object" or kinds == ["object"]:
        properties = schema.get("properties", {})
        return all(_finite(properties.get(key), finite) for key in schema.get("required", ()))
    if (kinds == "array" or kinds == ["array"]) and schema.get("minItems", 0) > 0:
        prefix = schema.get("prefixItems", ())[: int(schema["minItems"])]
        rest = schema["minItems"] > len(prefix) and isinstance(schema.get("items"), dict)
        return all(_finite(sub, finite) for sub in prefix) and (
            not rest or _finite(schema["items"], finite)
        )
    return True
