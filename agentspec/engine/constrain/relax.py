"""From a caller's schema to one that a mask engine can express.

Keywords the engine cannot express are removed at their schema position (property names are no
keywords) and their paths recorded as ``unchecked``: the mask is then a sound over-approximation,
and the finished value must be checked. Removing is sound because no kept keyword negates: ``not``,
``if`` and the like go whole, and ``oneOf`` becomes ``anyOf`` where the engine cannot prove it to be
one.

Deliberately smaller (the canonical sub-language, design law 2), only where no other schema judges
the same value: an object that lists its properties and says nothing of others is closed, and what
``dependentRequired`` may demand is always there.
"""

from __future__ import annotations

import json
import re
from collections import deque
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import chain
from typing import Any

from agentspec.toolcall.dialect import modern
from agentspec.toolcall.formats import KNOWN_FORMATS, MASKED_FORMATS, mask_pattern
from agentspec.toolcall.pattern import plain_part
from agentspec.toolcall.refs import is_plain, pointer

from .free import free_order, free_spelling
from .names import name_patterns, names_held, open_to_keys

MAX_MULTIPLE = 1000
MAX_PATTERNS = 60
"""Of one object: the engine proves pair by pair that they are disjoint."""
MAX_OPTIONAL = 400
"""Members of one object that may be left out: the engine's states are pairs of them."""
_KEPT = frozenset(
    {
        "const",
        "enum",
        "exclusiveMaximum",
        "exclusiveMinimum",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minProperties",
        "minimum",
        "required",
        "type",
    }
)
_NEVER = frozenset(
    {
        "$dynamicRef",
        "$recursiveRef",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "if",
        "not",
        "propertyNames",
        "unevaluatedItems",
        "unevaluatedProperties",
    }
)
_COMBINE = ("allOf", "anyOf", "oneOf")
_OPENING = frozenset({*_COMBINE, *_NEVER, "$ref", "additionalProperties", "patternProperties"}) - {
    "propertyNames",
    "contains",
    "unevaluatedItems",
}
_ESCAPED = re.compile(r"\\u00[01]")
_OLD_DRAFTS = ("draft-03", "draft-04", "draft-06", "draft-07")


@dataclass(frozen=True, slots=True)
class Level:
    """How much is given up so that an engine takes the schema; each level contains the one before.

    narrow: hold ``dependentRequired`` by a smaller language (which may turn out to be empty).
    coerce: oneOf becomes anyOf. drop: further keywords to remove. bare: what combines schemas goes
    as well, and a reference with siblings.
    """

    narrow: bool = False
    coerce: bool = False
    bare: bool = False
    drop: frozenset[str] = frozenset()


_BOUNDS = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_KEYS = frozenset({"patternProperties", "minProperties", "maxProperties"})
_TEXT = frozenset({"pattern", "format", "minLength", "maxLength"})
LEVELS = (
    Level(narrow=True),
    Level(),
    Level(coerce=True),
    Level(coerce=True, drop=_BOUNDS),
    Level(coerce=True, drop=_BOUNDS | _KEYS),
    Level(coerce=True, drop=_BOUNDS | _KEYS | _TEXT),
    Level(coerce=True, drop=_BOUNDS | _KEYS | _TEXT, bare=True),
)


@dataclass(slots=True)
class Relaxed:
    """document: what the engine compiles. unchecked: paths of keywords that it does not hold."""

    document: Any
    unchecked: list[str] = field(default_factory=list)


def relax(schema: Any, level: Level = LEVELS[0], *, canonical: bool = True) -> Relaxed:
    """The engine's version of ``schema``.

    canonical: the generated sub-language: closed objects, and no text that needs a unicode escape.
    """
    return _Relaxer(schema, level, canonical).run()


class _Relaxer:
    def __init__(self, root: Any, level: Level, canonical: bool):
        self.root, self.level, self.canonical = modern(root), level, canonical
        self.unchecked: list[str] = []
        self.names: dict[tuple[str, bool], str] = {}
        self.queue: deque[tuple[str, bool]] = deque()
        draft = root.get("$schema", "") if isinstance(root, dict) else ""
        self.ref_alone = isinstance(draft, str) and any(old in draft for old in _OLD_DRAFTS)

    def run(self) -> Relaxed:
        document = self.node(self.root, "", self.canonical)
        definitions = {}
        while self.queue:
            target, closable = self.queue.popleft()
            found = pointer(self.root, target[1:])
            definitions[self.names[target, closable]] = self.node(found, target[1:], closable)
        if definitions:
            if not isinstance(document, dict):
                return Relaxed(document, self.unchecked)
            document = {**document, "$defs": definitions}
        return Relaxed(document, sorted(set(self.unchecked)))

    def give_up(self, path: str, keyword: str) -> None:
        self.unchecked.append(f"{path}/{keyword}")

    def node(self, node: Any, path: str, closable: bool) -> Any:
        """One schema position. ``closable``: no other schema judges the same value."""
        if not isinstance(node, dict):
            return node
        if path and isinstance(node.get("$id"), str) and not node["$id"].startswith("#"):
            # An embedded id moves the base of every reference below it.
            self.give_up(path, "$id")
            return {}
        if "$ref" in node:
            kept = {} if self.ref_alone else self.keywords(node, path, closable=False)
            if kept and self.level.bare:
                self.give_up(path, "$ref")
                return kept
            alone = closable and not kept
            return {**kept, **self.reference(node["$ref"], path, alone)}
        return self.keywords(node, path, closable)

    def reference(self, ref: str, path: str, closable: bool) -> dict[str, Any]:
        if not is_plain(ref):
            self.give_up(path, "$ref")
            return {}
        key = (ref, closable)
        if key not in self.names:
            self.names[key] = f"r{len(self.names)}"
            self.queue.append(key)
        return {"$ref": f"#/$defs/{self.names[key]}"}

    def keywords(self, node: dict[str, Any], path: str, closable: bool) -> dict[str, Any]:
        out: dict[str, Any] = {}
        for key, value in node.items():
            if key in _NEVER:
                if not self.harmless(node, key) and not self.held(node, key, closable):
                    self.give_up(path, key)
            elif key in self.level.drop:
                self.give_up(path, key)
            elif key in _KEPT:
                out[key] = value
        self.listed(node, path, out)
        self.numbers(node, path, out)
        self.strings(node, path, out)
        self.arrays(node, path, out, closable)
        self.objects(node, path, out, closable)
        if self.level.bare:
            self.unchecked += [f"{path}/{key}" for key in _COMBINE if key in node]
        else:
            self.combined(node, path, out, closable)
        if not self.canonical:
            self.widened(out)
        return out

    @staticmethod
    def widened(out: dict[str, Any]) -> None:
        """What the checked language has beyond the engine's: order of keys, spellings of numbers
        and of texts, those in listed values too.

        1.0 and 1e2 are integers; the engine's bounded numbers have no exponents.
        """
        free_order(out)
        free_spelling(out)
        for key in _BOUNDS & out.keys():
            del out[key]
        kinds = out.get("type")
        if kinds == "integer":
            out["type"] = "number"
        elif isinstance(kinds, list) and "integer" in kinds:
            out["type"] = list(dict.fromkeys("number" if k == "integer" else k for k in kinds))

    def listed(self, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        """enum and const without the values that canonical text cannot spell.

        llguidance writes them without their control characters when it may not escape those.
        """
        for key in ("enum", "const") if self.canonical else ():
            values = node.get("enum", []) if key == "enum" else [node.get("const")]
            kept = [v for v in values if not _ESCAPED.search(json.dumps(v, ensure_ascii=False))]
            if key not in node or len(kept) == len(values):
                continue
            if kept:
                out[key] = kept
            else:
                del out[key]
                self.give_up(path, key)

    @staticmethod
    def harmless(node: dict[str, Any], key: str) -> bool:
        """Whether an inexpressible keyword says nothing here."""
        value = node[key]
        if key == "if":
            return "then" not in node and "else" not in node
        return value in (True, {}) and key not in ("not", "contains")

    def held(self, node: dict[str, Any], key: str, closable: bool) -> bool:
        """Whether a keyword that the engine lacks is held by other words (see ``objects``)."""
        if key == "propertyNames":
            return names_held(node, closable and self.canonical) and not self.dropped_keys()
        return key == "dependentRequired" and self.narrows(node, closable)

    def patterned(self, node: dict[str, Any]) -> bool:
        """Whether the mask holds ``patternProperties``: a wider pattern would demand more."""
        patterns = node.get("patternProperties", ())
        exact = len(patterns) <= MAX_PATTERNS and all(plain_part(p)[1] for p in patterns)
        return exact and not self.dropped_keys()

    def dropped_keys(self) -> bool:
        return "patternProperties" in self.level.drop

    def narrows(self, node: dict[str, Any], closable: bool) -> bool:
        """Whether ``dependentRequired`` becomes ``required`` here."""
        alone = _OPENING.isdisjoint(node.keys() - {"dependentRequired", "additionalProperties"})
        return self.level.narrow and self.canonical and closable and alone

    def numbers(self, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        bounds = [out[key] for key in _BOUNDS - {"multipleOf"} if key in out]
        for key in ("exclusiveMinimum", "exclusiveMaximum"):
            # Where two bounds have the same whole part, llguidance takes an open one as closed.
            if key in out and any(bound != int(bound) for bound in bounds):
                self.give_up(path, key)
        if "multipleOf" not in node or "multipleOf" in self.level.drop:
            return
        digits = Decimal(repr(node["multipleOf"])).normalize().as_tuple().digits
        # The automaton of "multiple of n" has n states: 999,983 took 8.6 s to compile.
        if int("".join(map(str, digits))) > MAX_MULTIPLE or node["multipleOf"] > MAX_MULTIPLE:
            self.give_up(path, "multipleOf")
        else:
            out["multipleOf"] = node["multipleOf"]
            if not float(node["multipleOf"]).is_integer():
                self.give_up(path, "multipleOf")  # of numbers beyond a float's range

    def strings(self, node: dict[str, Any], path: str, out: dict[str, Any]) -> None:
        if "pattern" in node and "pattern" not in self.level.drop:
            out["pattern"], exact = plain_part(node["pattern"])
            if not exact:
                self.give_up(path, "pattern")
        if "format" not in node or "format" in self.level.drop:
            return
        name = node["format"]
        if name in MASKED_FORMATS:
            out["format"] = name
        elif name in KNOWN_FORMATS:
            self.give_up(path, "format")
            pattern = mask_pattern(name)
            if pattern is not None and "pattern" not in node and "pattern" not in self.level.drop:
                out["pattern"] = pattern

    def arrays(self, node: dict[str, Any], path: str, out: dict[str, Any], closable: bool) -> None:
        if node.get("uniqueItems") is True and node.get("maxItems", 2) > 1:
            self.give_up(path, "uniqueItems")
        for key in ("items", "prefixItems", "additionalItems"):
            if key not in node:
                continue
            value = node[key]
            if isinstance(value, list):
                subs = [self.node(s, f"{path}/{key}/{i}", closable) for i, s in enumerate(value)]
                out[key] = subs
            else:
                out[key] = self.node(value, f"{path}/{key}", closable)

    def objects(self, node: dict[str, Any], path: str, out: dict[str, Any], closable: bool) -> None:
        patterned = self.patterned(node)
        if not patterned and "patternProperties" in node:
            self.give_up(path, "patternProperties")
        for key in ("properties", "patternProperties"):
            if key in node and (key == "properties" or patterned):
                out[key] = {
                    name: self.node(sub, f"{path}/{key}/{name}", closable)
                    for name, sub in node[key].items()
                }
        # Without its patterns, "additional" would mean more keys than it did: it goes with them.
        if "additionalProperties" in node:
            if "patternProperties" in node and not patterned:
                self.give_up(path, "additionalProperties")
            else:
                out["additionalProperties"] = self.node(
                    node["additionalProperties"], f"{path}/additionalProperties", closable
                )
        if "propertyNames" in node and self.held(node, "propertyNames", closable):
            name_patterns(node, out)
        narrowed = "dependentRequired" in node and self.narrows(node, closable)
        if narrowed:
            always = [*node.get("required", ()), *chain(*node["dependentRequired"].values())]
            out["required"] = list(dict.fromkeys(always))
        judged = {k: v for k, v in node.items() if k != "dependentRequired" or not narrowed}
        if closable and _may_close({**judged, "required": out.get("required", ())}):
            out["additionalProperties"] = False
        self.many(out, path)
        if open_to_keys(out) and node.get("minProperties", 0) > 1 + len(
            set(node.get("required", ()))
        ):
            # Extra keys may repeat one another, which makes fewer once parsed; one is sure.
            self.give_up(path, "minProperties")

    def many(self, out: dict[str, Any], path: str) -> None:
        """Far too many optional members become keys like any other."""
        needed, listed = set(out.get("required", ())), out.get("properties", {})
        if len(listed) - len(needed) > MAX_OPTIONAL:
            out["properties"] = {key: sub for key, sub in listed.items() if key in needed}
            out.pop("additionalProperties", None)
            out.pop("patternProperties", None)
            self.give_up(path, "properties")

    def combined(
        self, node: dict[str, Any], path: str, out: dict[str, Any], closable: bool
    ) -> None:
        alone = closable and not any(key in _OPENING or key == "properties" for key in out)
        alone = alone and sum(key in node for key in _COMBINE) == 1
        for key in _COMBINE:
            if key not in node:
                continue
            coerce = key == "oneOf" and (self.level.coerce or not self.canonical)
            branch_closable = alone and (key == "anyOf" or coerce)
            given_up = len(self.unchecked)
            subs = [
                self.node(sub, f"{path}/{key}/{i}", branch_closable)
                for i, sub in enumerate(node[key])
            ]
            vacuous = "properties" in out or any(sub in ({}, True) for sub in subs)
            if not self.canonical and key != "allOf" and vacuous:
                # Without its required keys a branch may say nothing: then so do they all. And where
                # patterns stand for keys, those of a branch beside the object's own exclude all.
                self.give_up(path, key)
                continue
            # A branch that allows too much would exclude what another rightly allows.
            if coerce or (key == "oneOf" and len(self.unchecked) > given_up):
                self.give_up(path, "oneOf")
                out.setdefault("allOf", []).append({"anyOf": subs})
            elif key == "allOf":
                out.setdefault("allOf", []).extend(subs)
            else:
                out[key] = subs


def _may_close(node: dict[str, Any]) -> bool:
    properties = node.get("properties")
    if not isinstance(properties, dict) or not _OPENING.isdisjoint(node):
        return False
    if not set(node.get("required", ())) <= properties.keys():
        return False
    return node.get("minProperties", 0) <= len(properties)
