"""Could a schema's grammar take long to build? Judged at a glance, so that most are not tried.

What multiplies in a mask engine: automata of patterns and of multiples, disjointness that is proven
pair by pair, intersections, states for each pair of optional members. A sum over the schema of what
each is about worth; anything above the limit is built in a process that can be ended (``trial``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from agentspec.toolcall.choice import OutputSpec

LIMIT = 1000
_COUNT = re.compile(r"\{(\d{1,9})(?:,(\d{0,9}))?\}")
_COMBINING = ("allOf", "anyOf", "oneOf")
_COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties")
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
_PER_CHAR = 0.02
"""Of the texts that a schema lists: 50,000 characters are at the limit."""


def heavy(spec: OutputSpec) -> bool:
    """Whether building the spec's grammar may take more than some tens of milliseconds."""
    if spec.grammar is not None:
        return True
    schemas: list[Any] = [function.parameters for function in spec.functions]
    if spec.answer is not None:
        schemas.append(spec.answer.schema)
    total = 0.0
    for weight in _weights(schemas):
        total += weight
        if total > LIMIT:
            return True
    return False


def _weights(schemas: list[Any]) -> Iterator[float]:
    """Of every object in the documents: it may be a schema."""
    stack = list(schemas)
    while stack:
        node = stack.pop()
        if isinstance(node, dict):
            yield _weight(node)
            stack.extend(node.values())
            yield _PER_CHAR * sum(map(len, node))
        elif isinstance(node, list):
            yield 0.2 * len(node)
            stack.extend(node)
        elif isinstance(node, str):
            yield _PER_CHAR * len(node)


def _weight(node: dict[str, Any]) -> float:
    total = 1.0
    if isinstance(pattern := node.get("pattern"), str):
        total += _pattern(pattern)
    if isinstance(patterns := node.get("patternProperties"), dict):
        total += sum(map(_pattern, patterns)) * max(1, len(patterns) - 1)
    for key in _COMBINING:
        if isinstance(branches := node.get(key), list):
            total += len(branches) ** 2 * (4 if key == "allOf" else 1)
    if isinstance(properties := node.get("properties"), dict):
        required = node.get("required")
        needed = len(required) if isinstance(required, list) else 0
        total += max(0, len(properties) - needed) ** 2 / 10
    total += 10 * sum(key in node for key in _BOUNDS) + 5 * ("format" in node)
    if "multipleOf" in node:
        total += 20 + _most(node["multipleOf"], 1000) / 2
    return total + sum(_most(node.get(key), 1e6) for key in _COUNTS) / 10


def _pattern(pattern: str) -> float:
    """Characters, each as often as the longest counted repetition says."""
    most = max((int(high or low) for low, high in _COUNT.findall(pattern)), default=1)
    return 2.0 * len(pattern) * max(1, min(most, 1000) / 8)


def _most(value: Any, limit: float) -> float:
    """A number, at most ``limit``; 0 for what is none."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return min(abs(value), limit) if number else 0
