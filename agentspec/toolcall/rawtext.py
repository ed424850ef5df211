"""Strings that stand as they are, up to the mark that ends them, as rules of a grammar."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_ANCHOR = re.compile(r"\\[bBAzZdDwWsSpP]|[\^$]|\(\?")
_HELD = ("type", "enum", "const", "minLength", "maxLength", "$defs", "definitions", "$schema")
_ANNOTATIONS = ("title", "description", "default", "examples", "deprecated", "$comment", "readOnly")


@dataclass(frozen=True, slots=True)
class RawRule:
    """A rule's lines, and the schema's words that it does not hold, as paths."""

    lines: list[str]
    unchecked: list[str]


def raw_rule(rule: str, schema: Any, *, close: str) -> RawRule:
    """The rule of a raw string of a schema together with ``close`` behind it.

    The text holds the mark in ``close`` (white space aside) nowhere else.
    """
    schema = schema if isinstance(schema, Mapping) else {}
    mark = close.strip()
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    unchecked = [f"/{word}" for word in schema if word not in (*_HELD, *_ANNOTATIONS, "pattern")]
    if isinstance(values, list):
        texts = [v for v in values if isinstance(v, str) and mark not in v]
        options = [json.dumps(text + close) for text in texts]
        if options:
            return RawRule([f"{rule}: {' | '.join(options)}"], unchecked)
    body = _body(schema)
    pattern = schema.get("pattern")
    also = ""
    if isinstance(pattern, str):
        converted = whole_pattern(pattern)
        if converted is None:
            unchecked.append("/pattern")
        else:
            also = f" & /{slashed(converted + re.escape(close))}/"
    close_, mark_ = slashed(re.escape(close)), slashed(re.escape(mark))
    terminal = f"/(?s:{body}){close_}/{also} & ~/(?s:.*{mark_}.+)/"
    name = rule.upper()
    return RawRule([f"{rule}[lazy]: {name}", f"{name}: {terminal}"], unchecked)


def whole_pattern(pattern: str) -> str | None:
    """A pattern that is searched for, as one that the whole text matches; None: not in this way.

    Only anchors at the two ends are understood, and no classes that differ between engines.
    """
    head, tail = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[head : len(pattern) - tail]
    if _ANCHOR.search(inner) or ((head or tail) and "|" in inner):
        return None
    try:
        re.compile(inner)
    except re.error:
        return None
    return ("" if head else "(?s:.*)") + f"({inner})" + ("" if tail else "(?s:.*)")


def slashed(pattern: str) -> str:
    """A pattern as it stands between slashes."""
    return re.sub(r"(?<!\\)/", r"\\/", pattern.replace("\\\n", "\\n").replace("\n", "\\n"))


def _body(schema: Mapping[str, Any]) -> str:
    least, most = schema.get("minLength", 0), schema.get("maxLength")
    if not isinstance(least, int) or not (most is None or isinstance(most, int)):
        return ".*"
    return ".*" if not least and most is None else f".{{{least},{'' if most is None else most}}}"
