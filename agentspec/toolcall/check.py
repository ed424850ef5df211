"""Finished values against their schema: the whole of JSON Schema, whatever a mask could express.

Patterns run on a linear-time engine, references never leave the document, nothing is fetched.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

from jsonschema import Draft4Validator, Draft6Validator, Draft7Validator, validators
from jsonschema.exceptions import ValidationError, best_match
from referencing import Registry
from referencing.exceptions import NoSuchResource, Unresolvable

from agentspec.wire.chat import Tool

from .budget import MAX_STEPS, TooManySteps, bounded, counted
from .dialect import normal
from .evaluated import unevaluated_properties
from .formats import format_checker
from .pattern import compiled

_MAX_MESSAGE_CHARS = 300
_REF_ALONE = (Draft4Validator, Draft6Validator, Draft7Validator)
"""In these drafts nothing beside a ``$ref`` counts."""
_COSTLY = ("$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "items", "properties")
_log = logging.getLogger(__name__)


class ValueChecker:
    """Checks values against one schema (its ``$schema`` draft; 2020-12 where none is named)."""

    def __init__(self, schema: dict[str, Any] | bool, *, object_only: bool = False):
        base, self.document = normal(schema)
        """The schema as it is read: the validator's own words."""
        self.ref_stands_alone = base in _REF_ALONE
        registry: Registry = Registry(retrieve=_refuse)  # type: ignore[call-arg]
        self._validator = _linear(base)(
            self.document, registry=registry, format_checker=format_checker()
        )
        self._object_only = object_only

    def check(self, text: str) -> str | None:
        """Why JSON text is not valid, naming the place, or None when it is. Raises nothing: a
        schema that cannot be applied is a reason as well.
        """
        try:
            value = json.loads(
                text, parse_constant=_refuse_constant, object_pairs_hook=_without_twins
            )
        except RecursionError:
            return "the value is nested too deeply"
        except ValueError as error:
            return f"not JSON: {error}"
        if self._object_only and not isinstance(value, dict):
            return "the arguments are not a JSON object"
        return self._judged(value)

    def holds(self, node: Any, value: Any) -> bool:
        """Whether ``value`` is valid under a subschema of ``document``. What cannot be applied
        holds nothing up: the whole value is checked in the end.
        """
        if isinstance(node, bool):
            return node
        try:
            with bounded(MAX_STEPS // 10):
                return self._validator.evolve(schema=node).is_valid(value)
        except OverflowError:
            return False
        except Exception:
            _log.debug("a subschema could not be applied", exc_info=True)
            return True

    def _judged(self, value: Any) -> str | None:
        try:
            with bounded():
                error = best_match(self._validator.iter_errors(value))
        except RecursionError:
            return "the value or its schema is nested too deeply"
        except Unresolvable as unresolved:
            return f"reference {unresolved.ref!r} cannot be resolved"
        except OverflowError:
            return "a number is too large"
        except TooManySteps:
            return "its schema takes too many steps to check"
        except Exception as error:
            # The validator runs over what clients sent; its accidents fail the value, not the turn.
            _log.exception("a schema could not be applied")
            return f"the schema cannot be applied ({type(error).__name__})"
        return None if error is None else _told(error)


class ArgumentsChecker:
    """Checks the finished arguments of calls against the tools' own schemas."""

    def __init__(self, tools: Sequence[Tool]):
        self._tools = {tool.function.name: tool.function.parameters for tool in tools}
        self._checkers: dict[str, ValueChecker] = {}

    def check(self, name: str, arguments_text: str) -> str | None:
        """Why a call's arguments are not valid, or None. An unknown tool is a reason as well."""
        if name not in self._tools:
            return f"no tool is named '{name}'"
        checker = self._checkers.get(name)
        if checker is None:
            schema = self._tools[name] or {"type": "object"}
            checker = self._checkers[name] = ValueChecker(schema, object_only=True)
        return checker.check(arguments_text)


def _told(error: ValidationError) -> str:
    place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
    return f"at ${place}: {error.message[:_MAX_MESSAGE_CHARS]}"


def _refuse(uri: str) -> Any:
    raise NoSuchResource(ref=uri)


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names are unique (RFC 8259 leaves open what the others would mean)."""
    value = dict(pairs)
    if len(value) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twin!r} is there twice")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@lru_cache(maxsize=16)
def _linear(base: Any) -> Any:
    """A validator class whose keywords search with RE2 instead of a backtracking engine."""
    own = {
        "multipleOf": _multiple_of,
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "unevaluatedProperties": unevaluated_properties,
    }
    own = {k: v for k, v in own.items() if k in base.VALIDATORS}
    costly = {k: counted(base.VALIDATORS[k]) for k in _COSTLY if k in base.VALIDATORS}
    return validators.extend(base, {**costly, **own})


def _multiple_of(
    validator: Any, step: float, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    """In decimals, as both are written: as floats 4.35 is no multiple of 0.01."""
    if validator.is_type(instance, "number") and _exact(instance) % _exact(step):
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _exact(number: float) -> Fraction:
    """Raises ``OverflowError`` for what is beyond a float's range."""
    return Fraction(number if isinstance(number, int) else Decimal(repr(number)))


def _pattern(validator: Any, pattern: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not compiled(pattern).search(instance):
        yield ValidationError(f"{instance!r} does not match {pattern!r}")


def _pattern_properties(
    validator: Any, patterns: dict[str, Any], instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    for pattern, sub in patterns.items():
        search = compiled(pattern).search
        for key, value in instance.items():
            if search(key):
                yield from validator.descend(value, sub, path=key, schema_path=pattern)


def _additional_properties(
    validator: Any, additional: Any, instance: Any, schema: Any
) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    declared = schema.get("properties", {})
    searches = [compiled(pattern).search for pattern in schema.get("patternProperties", {})]
    for key, value in instance.items():
        if key in declared or any(search(key) for search in searches):
            continue
        if additional is False:
            yield ValidationError(f"Additional property {key!r} is not allowed")
        elif additional is not True:
            yield from validator.descend(value, additional, path=key)
