"""Lark grammars of formats: exactly what ``Parser`` reads back to calls that the schemas allow.

The dialect is llguidance's: ``%json`` rules, lazy rules, ``<[id]>`` for a token. A call's arguments
are a rule ``args_I``; JSON arguments are one ``%json`` document, tagged ones a rule an argument,
other spellings a rule a value (``compose_values.py``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from string import Template
from typing import Any

from .choice import OutputSpec
from .compose_values import ValueRules, joined
from .format import Tags, ToolFormat
from .rawtext import raw_rule
from .typed import resolved, types_of, with_definitions

Dump = Callable[[Any], str]
_PLACES = re.compile(r"(\$name|\$index|\$id)")
_TERMINALS = {"$index": "/0|[1-9][0-9]{0,3}/", "$id": "/[A-Za-z0-9]{9}/"}
_JOINS = ("anyOf", "oneOf", "allOf", "not", "if", "dependentSchemas", "patternProperties")
_COUNTS = ("minProperties", "maxProperties", "propertyNames", "dependentRequired", "dependencies")


@dataclass(slots=True)
class Rules:
    """Lines of a grammar, and the schema paths that it does not hold."""

    lines: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)


def frame(spec: OutputSpec, tokens: Mapping[str, int] | None = None) -> str:
    """The format's grammar filled in for a spec's tools: all but the rules ``args_I`` and, where
    there is one, ``answer``. tokens: spellings that are tokens of their own -> id.

    Where calls may but need not be made and the rest is free text, the grammar starts behind the
    opening marker; in an anchored format it is the whole answer.
    """
    if not spec.functions:
        return "start: answer"
    fmt, extra = spec.format, spec.max_calls - 1

    def spelled(text: str) -> str:
        return literal(text, tokens)

    start = "block" if spec.calls == "must" else "block | answer" if spec.answer else "calls"
    free = ""
    if start == "calls" and fmt.anchored:
        start = "block | free"
        free = f'\nfree: /[^{re.escape(fmt.open[0])}\\s](?s:.*)/ | ""'
    return free_of_empty(
        Template(fmt.grammar).substitute(
            start=start,
            open=spelled(fmt.open),
            list_open=spelled(fmt.list_open),
            # One literal: the lexer is greedy, and the separator may begin as they do.
            list_close=spelled(fmt.list_close + fmt.close),
            close='""',
            more=f"({spelled(fmt.separator)} call){{0,{extra}}}" if extra else "",
            alternatives="\n  | ".join(_alternatives(spec, tokens)),
        )
        + free
    )


def free_of_empty(lark: str) -> str:
    """The grammar without empty literals between other things; a literal alone stays."""
    return re.sub(r'(?<=[\w")\]}>]) ""(?= |\n|$)', "", lark)


def literal(text: str, tokens: Mapping[str, int] | None = None) -> str:
    """A text as a sequence of literals and, where it spells tokens of their own, those."""
    if not tokens or not text:
        return json.dumps(text)
    split = re.split(
        "(" + "|".join(map(re.escape, sorted(tokens, key=len, reverse=True))) + ")", text
    )
    return " ".join(f"<[{tokens[p]}]>" if p in tokens else json.dumps(p) for p in split if p)


def _alternatives(spec: OutputSpec, tokens: Mapping[str, int] | None) -> Iterator[str]:
    """A call of each tool."""
    fmt = spec.format
    for i, function in enumerate(spec.functions):
        head = _filled(fmt.head_template, function.name, tokens)
        tail = _filled(fmt.tail_template, function.name, tokens)
        yield " ".join(part for part in (head, f"args_{i}", tail) if part)


def _filled(template: str, name: str, tokens: Mapping[str, int] | None) -> str:
    """A head or tail as a sequence; the name is part of the literal around it."""
    parts = _PLACES.split(template.replace("$name", name))
    return " ".join(_TERMINALS.get(part) or literal(part, tokens) for part in parts if part)


def argument_rules(fmt: ToolFormat, rule: str, schema: Any, dump: Dump) -> Rules:
    """The rules, beginning with the one called ``rule``, for arguments of a schema.

    dump: a schema as the text of a ``%json`` rule.
    """
    if fmt.encoding == "json":
        return Rules([f"{rule}: %json {dump(schema)}"])
    if fmt.tags is not None:
        return _Tagged(rule, schema, fmt.tags, dump).rules
    assert fmt.spelling is not None
    values = ValueRules(rule, schema, fmt.spelling, dump)
    values.arguments(keywords=fmt.encoding == "python")
    return Rules(values.lines, values.unchecked)


class _Tagged:
    """One rule an argument, in the schema's order; what is not required may be missing."""

    def __init__(self, rule: str, schema: Any, tags: Tags, dump: Dump):
        self.rules = Rules()
        self._root, self._tags, self._dump = schema, tags, dump
        self._raws = 0
        self._rule = rule
        node = resolved(schema, schema)
        node = node if isinstance(node, Mapping) else {}
        required = set(node.get("required", ()))
        properties = {k: v for k, v in node.get("properties", {}).items() if v is not False}
        self.rules.unchecked += [f"/{word}" for word in (*_JOINS, *_COUNTS) if word in node]
        self.rules.unchecked += [f"/required/{key}" for key in required if key not in properties]
        parts: list[str] = []
        for i, (key, sub) in enumerate(properties.items()):
            if not _proper(key, tags):
                self.rules.unchecked.append(f"/properties/{key}")
                continue
            self._argument(f"{rule}_{i}", key, sub)
            parts.append(f"{rule}_{i}" + ("" if key in required else "?"))
        self.rules.lines.insert(0, f"{rule}: {' '.join(parts) or json.dumps('')}")

    def _argument(self, rule: str, key: str, schema: Any) -> None:
        tags = self._tags
        options = " | ".join(self._options(rule, key, schema))
        opening = json.dumps(tags.open + key + tags.key_close)
        end = f" {json.dumps(tags.end)}" if tags.end else ""
        self.rules.lines.append(f"{rule}: {opening} ({options}){end}")

    def _options(self, rule: str, key: str, schema: Any) -> Iterator[str]:
        """The forms of a value, from what opens it to what closes it."""
        node, tags = resolved(schema, self._root), self._tags
        word = next(
            (w for w in ("anyOf", "oneOf") if isinstance(node, Mapping) and w in node), None
        )
        if word is not None:
            rest = {k: v for k, v in node.items() if k != word}
            for i, branch in enumerate(node[word]):
                branch = joined(rest, resolved(branch, self._root))
                yield from self._options(f"{rule}_{i}", key, branch)
            return
        types = types_of(node, self._root)
        close = json.dumps(tags.value_close)
        others = types - {"string"}
        if "string" in types and not tags.json_open:
            # As bare text they are read as what they spell, and may not hold the closing mark.
            others -= {"array", "object"}
        if others:
            document = with_definitions(node if isinstance(node, Mapping) else {}, self._root)
            document = document if others == types else _only(document, others)
            self.rules.lines.append(f"{rule}_json: %json {self._dump(document)}")
            opening = json.dumps(tags.json_open or tags.value_open)
            yield " ".join(p for p in (opening, f"{rule}_json", close) if p != '""')
        if "string" in types:
            raw = raw_rule(f"{rule}_raw", node, close=tags.value_close)
            self.rules.lines += raw.lines
            self.rules.unchecked += [f"/properties/{key}{path}" for path in raw.unchecked]
            opening = json.dumps(tags.string_open or tags.value_open)
            yield " ".join(p for p in (opening, f"{rule}_raw") if p != '""')


def _only(document: dict[str, Any], types: set[str]) -> Any:
    """The values of a schema that have one of these types."""
    values = document.get("enum")
    if isinstance(values, list):
        return {"enum": [value for value in values if not isinstance(value, str)]}
    if isinstance(document.get("type"), list):
        return {**document, "type": [kind for kind in document["type"] if kind in types]}
    definitions = {k: document[k] for k in ("$defs", "definitions") if k in document}
    inner = {k: v for k, v in document.items() if k not in definitions}
    if not inner:
        return {"type": sorted(types)}
    return {**definitions, "allOf": [inner, {"type": sorted(types)}]}


def _proper(key: str, tags: Tags) -> bool:
    """Whether an argument's name can be told from the marks around it."""
    return bool(key) and len(key) <= 256 and not any(c in key for c in ("\n", "<", tags.key_close))
