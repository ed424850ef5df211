"""Schemas for answers of foreign servers, which take more than our engine does: what a checker
reads of them.

A keyword that we can't read (a type named "any", a pattern with look-behind) is refused by name
before anything is asked, since an answer couldn't be held to it; so is a reference that leads
nowhere.
"""

from __future__ import annotations

from typing import Any

from agentspec.wire.chat import Tool
from agentspec.wire.errors import InvalidSchema

from .pattern import check_pattern
from .refs import resolve
from .schema import CHECKS, EXCLUSIVE, LISTS, MAPS, SINGLES, TYPES

_SHOWN_CHARS = 200


def readable_tools(tools: list[Tool]) -> list[Tool]:
    """The tools with schemas that can be checked; the given ones aren't changed. Raises
    ``InvalidSchema`` naming the field."""
    return [_tool(tool, f"tools[{index}].function.parameters") for index, tool in enumerate(tools)]


def _tool(tool: Tool, param: str) -> Tool:
    given = tool.function
    what = f"function '{given.name}'"
    schema = readable(given.parameters, param, what)
    if isinstance(schema, dict) and schema.get("type", "object") != "object":
        kind = schema["type"]
        if not (isinstance(kind, list) and "object" in kind):
            raise InvalidSchema(
                f"Invalid schema for {what}: schema must be a JSON Schema of 'type: \"object\"', "
                f"got 'type: {kind!r}'.",
                param=param,
                code="invalid_function_parameters",
            )
    return Tool(type(given)(given.name, given.description, schema, given.strict))


def readable(schema: Any, param: str, what: str) -> Any:
    """A copy of ``schema`` in JSON Schema's spelling. what: names its owner.

    Raises ``InvalidSchema`` for what can't be read, and where a reference leads nowhere.
    """
    if not isinstance(schema, dict):
        return schema
    reading = _Reading(schema, param, what)
    found = reading.node(schema, "")
    if reading.skipped:
        places = ", ".join(reading.skipped)[:_SHOWN_CHARS]
        raise InvalidSchema(
            f"Invalid schema for {what}: these can't be checked, so the answer couldn't be held to "
            f"them: {places}.",
            param=param,
            code="invalid_function_parameters" if "tools" in param else None,
        )
    return found


class _Reading:
    def __init__(self, root: dict[str, Any], param: str, what: str):
        self.root, self.param, self.what = root, param, what
        self.skipped: list[str] = []

    def node(self, node: Any, at: str) -> Any:
        if isinstance(node, bool):
            return node
        if not isinstance(node, dict):
            self.skipped.append(at)
            return True
        self.refer(node)
        found: dict[str, Any] = {}
        for key, value in node.items():
            here = f"{at}.{key}" if at else key
            if key == "type":
                value = _type(value)
            if self.holds(key, value, here):
                found[key] = self.value(key, value, here)
        return found

    def refer(self, node: dict[str, Any]) -> None:
        for key in ("$ref", "$dynamicRef"):
            ref = node.get(key)
            if isinstance(ref, str) and resolve(self.root, ref) is None:
                raise InvalidSchema(
                    f"Invalid schema for {self.what}: reference '{ref[:200]}' leads to nothing in "
                    "this schema; remote references are not followed.",
                    param=self.param,
                    code="invalid_function_parameters" if "tools" in self.param else None,
                )

    def holds(self, key: str, value: Any, at: str) -> bool:
        """Whether a keyword can be read."""
        check = CHECKS.get(key)
        bound = key in EXCLUSIVE and isinstance(value, bool)
        if check is None or bound or key == "patternProperties":
            return True
        if (key == "enum" and isinstance(value, list)) or check(value) is None:
            return True
        self.skipped.append(at)
        return False

    def value(self, key: str, value: Any, at: str) -> Any:
        if key == "patternProperties":
            return {
                name: self.node(sub, f"{at}.{name}")
                for name, sub in _dict(value).items()
                if self.reads(name, at)
            }
        if key in MAPS:
            return {name: self.node(sub, f"{at}.{name}") for name, sub in value.items()}
        if (key in LISTS or key == "items") and isinstance(value, list):
            return [self.node(sub, f"{at}[{index}]") for index, sub in enumerate(value)]
        if key in SINGLES:
            return self.node(value, at)
        if key == "dependencies":
            return {
                name: sub if isinstance(sub, list) else self.node(sub, f"{at}.{name}")
                for name, sub in value.items()
            }
        return value

    def reads(self, pattern: str, at: str) -> bool:
        if check_pattern(pattern) is None:
            return True
        self.skipped.append(at)
        return False


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _type(value: Any) -> Any:
    """Types in capitals (Gemini's spelling) in JSON Schema's."""
    if isinstance(value, list):
        return [_type(name) for name in value]
    lower = value.lower() if isinstance(value, str) else value
    return lower if lower in TYPES else value
