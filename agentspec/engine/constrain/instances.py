"""Values that a schema may accept: where a judged session's first witness comes from.

Only proposals: each is held against the whole schema before it is used. Alternatives are tried in
order, mandatory parts only, so that the first that fits is a short one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from agentspec.toolcall.check import ValueChecker
from agentspec.toolcall.pattern import compiled
from agentspec.toolcall.refs import resolve

from .example import examples

_MAX_TRIED = 100
_MAX_STEPS = 3000
"""Schema positions visited: proposals multiply."""
_MAX_COUNT = 2000
"""More characters, items or members than this are not proposed."""
_MAX_DEPTH = 12
_MAX_VARIANTS = 24
_MAX_OPTIONS = 9
_SCALARS: dict[str, tuple[Any, ...]] = {
    "null": (None,),
    "boolean": (False, True),
    "integer": (0, 1, 2, 3, 10, -1),
    "number": (0, 1, 0.5, 2, 10, -1),
    "string": ("", "a", "b", "aa", "0", "A1"),
}
_KINDS = ("null", "boolean", "integer", "string", "object", "array")


def instances(schema: Any, most: int = 4) -> Iterator[Any]:
    """Values that are valid under ``schema``, at most ``most``, after so many tries."""
    checker = ValueChecker(schema)
    proposed = _Proposals(checker).of(checker.document, 0)
    given = 0
    for value in islice(proposed, _MAX_TRIED):
        if given < most and checker.check(json.dumps(value)) is None:
            given += 1
            yield value
        if given == most:
            return


class _Proposals:
    def __init__(self, checker: ValueChecker):
        self._checker, self._root = checker, checker.document
        self._steps = 0

    def _tired(self) -> bool:
        self._steps += 1
        return self._steps > _MAX_STEPS

    def of(self, node: Any, depth: int) -> Iterator[Any]:
        """Proposals for one place; none below a depth at which a finite value is not in sight."""
        if node is False or depth > _MAX_DEPTH or self._tired():
            return
        for flat in islice(self.variants(node, depth), _MAX_VARIANTS):
            yield from islice(self.plain(flat, depth), _MAX_VARIANTS)

    def variants(self, node: Any, depth: int) -> Iterator[dict[str, Any]]:
        """``node`` as flat schemas: one for each way through its references and branches."""
        if not isinstance(node, dict):
            if node is not False:
                yield {}
            return
        if depth > 2 * _MAX_DEPTH or self._tired():
            return
        own = {k: v for k, v in node.items() if k not in ("allOf", "anyOf", "oneOf", "$ref")}
        parts: list[list[Any]] = [[sub] for sub in node.get("allOf", ())]
        if isinstance(node.get("$ref"), str):
            parts.append([resolve(self._root, node["$ref"])])
        parts += [node[key] for key in ("oneOf", "anyOf") if node.get(key)]
        if "if" in node and ("then" in node or "else" in node):
            holds = {"allOf": [node["if"], node.get("then", True)]}
            parts.append([node["else"], holds] if "else" in node else [True, holds])
        parts += [[True, sub] for sub in _dependents(node)]
        flats: Iterator[dict[str, Any]] = iter((own,))
        for choices in parts:
            flats = self._joined(flats, choices, depth)
        yield from flats

    def _joined(
        self, flats: Iterator[dict[str, Any]], choices: list[Any], depth: int
    ) -> Iterator[dict[str, Any]]:
        for flat in list(islice(flats, _MAX_VARIANTS)):
            for choice in choices:
                for other in islice(self.variants(choice, depth + 1), _MAX_VARIANTS):
                    yield _merged(flat, other)

    def plain(self, node: dict[str, Any], depth: int) -> Iterator[Any]:
        """Proposals for a flat schema."""
        if "const" in node:
            yield node["const"]
        elif "enum" in node:
            yield from node["enum"]
        else:
            kinds = node.get("type") or _kinds(node)
            for kind in kinds if isinstance(kinds, list) else [kinds]:
                yield from self.kind(kind, node, depth)

    def kind(self, kind: str, node: dict[str, Any], depth: int) -> Iterator[Any]:
        if kind == "object":
            yield from self.objects(node, depth)
        elif kind == "array":
            yield from self.arrays(node, depth)
        elif kind == "string":
            yield from examples(node)
            low = int(node.get("minLength", 0))
            if low <= _MAX_COUNT:
                yield from (text + "a" * (low - len(text)) for text in _SCALARS["string"])
        else:
            yield from _bounded(node)
            yield from _SCALARS.get(kind, ())

    def objects(self, node: dict[str, Any], depth: int) -> Iterator[dict[str, Any]]:
        """The required members, then one more after the other, up to all that are declared."""
        properties = node.get("properties", {})
        needed = dict.fromkeys([k for k in properties if k in node.get("required", ())])
        needed |= dict.fromkeys(node.get("required", ()))
        low = int(node.get("minProperties", 0))
        if low > _MAX_COUNT:
            return
        spare = [key for key in properties if key not in needed]
        names = node.get("propertyNames")
        spare += [k for k in self.of(names, depth + 1) if isinstance(k, str)] if names else []
        for pattern in node.get("patternProperties", ()):
            spare += list(islice(examples({"pattern": pattern}), 1))
        spare += [f"k{i}" for i in range(low)]
        for extra in range(min(len(spare), _MAX_VARIANTS) + 1):
            keys = [*needed, *spare[: max(extra, low - len(needed))]]
            if len(set(keys)) < low:
                continue
            ordered = [k for k in properties if k in keys] + [
                k for k in keys if k not in properties
            ]
            yield from self.members(node, list(dict.fromkeys(ordered)), depth)

    def members(self, node: dict[str, Any], keys: list[str], depth: int) -> Iterator[dict]:
        """Objects with ``keys``: the first proposals of all, then other ones of each in turn."""
        subs = {key: _member(node, key) for key in keys}
        options = {k: self.best_first(sub, depth + 1) for k, sub in subs.items()}
        if not all(options.values()):
            return
        first = {key: values[0] for key, values in options.items()}
        yield first
        for key, values in options.items():
            yield from ({**first, key: value} for value in values[1:])

    def best_first(self, node: Any, depth: int) -> list[Any]:
        """Some proposals for a place, one that is right there before all others."""
        values = list(islice(self.of(node, depth), _MAX_OPTIONS))
        right = next((i for i, v in enumerate(values) if self._checker.holds(node, v)), 0)
        return [*values[right : right + 1], *values[:right], *values[right + 1 :]]

    def arrays(self, node: dict[str, Any], depth: int) -> Iterator[list[Any]]:
        items = node.get("items", True)
        fixed = node.get("prefixItems") or (items if isinstance(items, list) else [])
        rest = node.get("additionalItems", True) if isinstance(items, list) else items
        low, times = int(node.get("minItems", 0)), int(node.get("minContains", 1))
        if max(low, times) > _MAX_COUNT:
            return
        head = [next(self.of(sub, depth + 1), None) for sub in fixed]
        pool = list(islice(self.of(rest, depth + 1), 8))
        if "contains" in node:
            wanted = list(islice(self.of(node["contains"], depth + 1), 8))
            yield from ([*head[:low], *([value] * times)] for value in wanted)
            pool = wanted + pool
        for count in {min(low, len(head)), len(head)}:
            more = max(low - count, 0)
            if more <= len(pool):
                yield [*head[:count], *pool[:more]]
            if pool:
                yield [*head[:count], *([pool[0]] * more)]
            if not more and pool:
                yield [*head[:count], pool[0]]


def _member(node: dict[str, Any], key: str) -> Any:
    """What an object's schema says of the value of ``key``."""
    named, patterns = node.get("properties", {}), node.get("patternProperties", {})
    held = [named[key]] if key in named else []
    held += [sub for pattern, sub in patterns.items() if compiled(pattern).search(key)]
    if not held:
        return node.get("additionalProperties", True)
    return held[0] if len(held) == 1 else {"allOf": held}


def _dependents(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """What holds where a key is there, with that key."""
    for word in ("dependentSchemas", "dependentRequired", "dependencies"):
        for key, held in node.get(word, {}).items():
            if isinstance(held, list):
                yield {"required": [key, *held]}
            else:
                yield {"required": [key], "allOf": [held]}


def _kinds(node: dict[str, Any]) -> list[str]:
    """The kinds that a schema without ``type`` seems to speak of first, then the others."""
    telling = {
        "object": ("properties", "required", "minProperties", "patternProperties"),
        "array": ("items", "prefixItems", "contains", "minItems", "uniqueItems"),
        "string": ("pattern", "format", "minLength"),
        "integer": ("minimum", "maximum", "multipleOf", "exclusiveMinimum", "exclusiveMaximum"),
    }
    likely = [kind for kind, words in telling.items() if any(word in node for word in words)]
    return [*likely, *(kind for kind in _KINDS if kind not in likely)]


def _bounded(node: dict[str, Any]) -> Iterator[float]:
    step = node.get("multipleOf")
    step = step if step and abs(step) < 1e15 else None
    for key in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
        bound = node.get(key)
        if isinstance(bound, int | float) and not isinstance(bound, bool) and abs(bound) < 1e15:
            yield from (bound, bound + 1, bound - 1)
            if step:
                nearest = round(bound / step) * step
                yield from (nearest, nearest + step, nearest - step)
    if step:
        yield step
    low = node.get("exclusiveMinimum", node.get("minimum"))
    high = node.get("exclusiveMaximum", node.get("maximum"))
    if isinstance(low, int | float) and isinstance(high, int | float) and -1e15 < low < high < 1e15:
        yield (low + high) / 2


def _merged(one: dict[str, Any], two: dict[str, Any]) -> dict[str, Any]:
    """Both schemas' words in one, as far as a proposal needs it."""
    out = {**one, **two}
    for key in one.keys() & two.keys():
        a, b = one[key], two[key]
        if key == "properties":
            both = {k: {"allOf": [a[k], b[k]]} for k in a.keys() & b.keys()}
            out[key] = {**a, **b, **both}
        elif key == "required":
            out[key] = list(dict.fromkeys([*a, *b]))
        elif key == "enum":
            out[key] = [value for value in a if value in b] or a
        elif key == "type":
            left, right = ([t] if isinstance(t, str) else t for t in (a, b))
            shared = [t for t in left if t in right or (t == "integer" and "number" in right)]
            out[key] = shared or [t for t in right if t == "integer" and "number" in left] or left
        elif key in ("minimum", "minLength", "minItems", "minProperties", "exclusiveMinimum"):
            out[key] = max(a, b)
        elif key in ("maximum", "maxLength", "maxItems", "maxProperties", "exclusiveMaximum"):
            out[key] = min(a, b)
        elif key in ("items", "additionalProperties") and not isinstance(a, list):
            out[key] = {"allOf": [a, b]}
    return out
