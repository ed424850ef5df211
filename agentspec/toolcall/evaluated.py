"""``unevaluatedProperties`` with linear-time patterns.

Which keys count as evaluated: JSON Schema 2020-12 core, section 11.3.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema.exceptions import ValidationError

from .pattern import compiled


def unevaluated_properties(
    validator: Any, unevaluated: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """The keyword for ``jsonschema.validators.extend``."""
    if not validator.is_type(instance, "object"):
        return
    known = evaluated_keys(validator, instance, {**schema, "unevaluatedProperties": None})
    for key, value in instance.items():
        if key in known:
            continue
        if unevaluated is False:
            yield ValidationError(f"Unevaluated property {key!r} is not allowed")
        else:
            yield from validator.descend(value, unevaluated, path=key)


def evaluated_keys(validator: Any, instance: dict[str, Any], schema: Any) -> set[str]:
    """Keys of ``instance`` that ``schema`` or a schema it applies in place has judged."""
    if not isinstance(schema, dict):
        return set()
    keys = _own_keys(instance, schema)
    for sub in _applied(validator, instance, schema):
        keys |= evaluated_keys(validator, instance, sub)
    for keyword in ("$ref", "$dynamicRef"):
        if keyword in schema:
            resolved = validator._resolver.lookup(schema[keyword])
            inner = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
            keys |= evaluated_keys(inner, instance, resolved.contents)
    return keys


def _own_keys(instance: dict[str, Any], schema: dict[str, Any]) -> set[str]:
    keys = {key for key in instance if key in schema.get("properties", {})}
    for pattern in schema.get("patternProperties", {}):
        search = compiled(pattern).search
        keys |= {key for key in instance if search(key)}
    if schema.get("additionalProperties") is not None or schema.get("unevaluatedProperties"):
        keys |= set(instance)
    return keys


def _applied(validator: Any, instance: dict[str, Any], schema: dict[str, Any]) -> Iterator[Any]:
    """In-place subschemas of a node that hold for the instance."""
    for keyword in ("allOf", "anyOf", "oneOf"):
        for sub in schema.get(keyword, ()):
            if validator.evolve(schema=sub).is_valid(instance):
                yield sub
    for key, sub in schema.get("dependentSchemas", {}).items():
        if key in instance:
            yield sub
    if "if" in schema:
        holds = validator.evolve(schema=schema["if"]).is_valid(instance)
        if holds:
            yield schema["if"]
        branch = "then" if holds else "else"
        if branch in schema:
            yield schema[branch]
