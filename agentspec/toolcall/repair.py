"""Finished arguments of calls that nothing constrained: checked, and mended where that is safe.

A text is mended only if what it must mean is beyond doubt, and only if the result satisfies the
tool's schema. What is open is never closed: a torn call stays torn.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentspec.wire.chat import Tool

from .check import ArgumentsChecker
from .spelling import PYTHON, Misspelled, read_value
from .typed import property_schema, resolved, types_of

_FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_ODD_ESCAPE = re.compile(r"""(?<!\\)(?:\\\\)*\\(?!["'\\/bfnrtu])""")
_INTEGER = re.compile(r"-?(?:0|[1-9]\d*)")
_NUMBER = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
_MAX_DEPTH = 32
_WORDS: dict[str, Any] = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Checked:
    """Arguments after the check. text: JSON, mended where ``repaired``. wrong: why they cannot be
    passed on; None: they satisfy their schema."""

    text: str
    repaired: bool = False
    wrong: str | None = None


class CallChecker:
    """Checks finished calls against a request's tools."""

    def __init__(self, tools: Sequence[Tool]):
        self._arguments = ArgumentsChecker(tools)
        self._schemas = {tool.function.name: tool.function.parameters or {} for tool in tools}

    def check(self, name: str, text: str) -> Checked:
        """A call's arguments, as they are or mended. Raises nothing."""
        wrong = self._arguments.check(name, text)
        if wrong is None or name not in self._schemas:
            return Checked(text, wrong=wrong)
        value = _read(text)
        if value is not None:
            # Spelling alone first: a value is touched only where the schema does not take it.
            schema = self._schemas[name]
            for mended in (value, _fitted(value, schema, schema, 0)):
                spelled = json.dumps(mended, ensure_ascii=False)
                if self._arguments.check(name, spelled) is None:
                    return Checked(spelled, repaired=True)
        return Checked(text, wrong=wrong)


def _read(text: str) -> dict[str, Any] | None:
    """The object that a text beyond doubt means; None: it is not beyond doubt."""
    if text.strip() in ("", "null", "None"):
        return {}
    fenced = _FENCE.fullmatch(text)
    if fenced is not None:
        text = fenced.group(1)
    value = _value(text)
    if isinstance(value, str):
        value = _value(value)
    return value if isinstance(value, dict) else None


def _value(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_refuse, object_pairs_hook=_once)
    except RecursionError:
        return None
    except _Twice:
        return None
    except ValueError:
        pass
    if _ODD_ESCAPE.search(text):
        return None
    try:
        return read_value(text.strip(), PYTHON)
    except Misspelled:
        return None


def _fitted(value: Any, schema: Any, root: Mapping[str, Any], depth: int) -> Any:
    """The value with scalars in strings as what they spell, where the schema allows no string, and
    without optional properties that are null, where it allows no null."""
    if depth > _MAX_DEPTH:
        return value
    node = resolved(schema, root)
    if not isinstance(node, Mapping):
        return value
    if isinstance(value, dict):
        fields = [(k, v) for k, v in value.items() if v is not None or not _spare(k, node, root)]
        return {
            k: _fitted(v, property_schema(_at(node, root), k), root, depth + 1) for k, v in fields
        }
    if isinstance(value, list):
        items = node.get("items", True)
        return [_fitted(item, items, root, depth + 1) for item in value]
    if isinstance(value, str):
        types = types_of(node, root)
        return value if "string" in types else _spelled(value, types)
    return value


def _spare(key: str, node: Mapping[str, Any], root: Mapping[str, Any]) -> bool:
    """Whether null for a property can only mean that there is none."""
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, Mapping) or key not in properties:
        return False
    if isinstance(required, list) and key in required:
        return False
    return "null" not in types_of(properties[key], root)


def _at(node: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """A part of a document such that ``property_schema`` finds its definitions."""
    return {**{k: root[k] for k in ("$defs", "definitions") if k in root}, **node}


def _spelled(text: str, types: set[str]) -> Any:
    """The one value of these types whose exact spelling a text is; else the text."""
    if "integer" in types and _INTEGER.fullmatch(text) and len(text) < 400:
        return int(text)
    if "number" in types and _NUMBER.fullmatch(text) and len(text) < 400:
        return json.loads(text)
    if "boolean" in types and text in _WORDS:
        return _WORDS[text]
    if "null" in types and text == "null":
        return None
    if types & {"array", "object"} and text[:1] in ("[", "{"):
        value = _value(text)
        kind = "array" if isinstance(value, list) else "object" if isinstance(value, dict) else ""
        return value if kind in types else text
    return text


class _Twice(ValueError):
    """A key is given twice."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise _Twice
    return found


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
