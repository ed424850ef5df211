"""Tools that OpenAI names by kind and the client runs: shells, patches, a search for tools.

Each is offered to the model as a function, and a call of it is given back as the item by which the
client knows it; what the client sends of earlier ones becomes calls and results again. The items'
shapes are those of openai-python 3.57.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .chat import FunctionDef, encode

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER: dict[str, Any] = {"type": "integer"}
_LINES: dict[str, Any] = {"type": "array", "items": {"type": "string"}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Builtin:
    """item, prefix: the type of a call's item and of its id; holds: where the item has what the
    call is given, beside ``fixed``."""

    item: str
    prefix: str
    holds: str
    description: str
    properties: Mapping[str, Any]
    required: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def definition(self) -> FunctionDef:
        parameters = {
            "type": "object",
            "properties": dict(self.properties),
            "required": list(self.required),
        }
        return FunctionDef("", self.description, parameters)


BUILTINS: dict[str, Builtin] = {
    "local_shell": Builtin(
        item="local_shell_call",
        prefix="lsh",
        holds="action",
        description="Run a command on the user's machine. It is given as a list: program, then "
        "arguments.",
        properties={"command": _LINES, "working_directory": _TEXT, "timeout_ms": _NUMBER},
        required=("command",),
        fixed={"type": "exec", "env": {}},
    ),
    "shell": Builtin(
        item="shell_call",
        prefix="sh",
        holds="action",
        description="Run shell commands on the user's machine.",
        properties={"commands": _LINES, "timeout_ms": _NUMBER, "max_output_length": _NUMBER},
        required=("commands",),
        fixed={"timeout_ms": None, "max_output_length": None},
    ),
    "apply_patch": Builtin(
        item="apply_patch_call",
        prefix="apc",
        holds="operation",
        description="Create, update or delete a file. The diff is in the V4A format; it is empty "
        "where the file is deleted.",
        properties={
            "type": {"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            "path": _TEXT,
            "diff": {"type": ["string", "null"]},
        },
        required=("type", "path"),
    ),
    "tool_search": Builtin(
        item="tool_search_call",
        prefix="tsc",
        holds="arguments",
        description="Search for tools that are not loaded yet.",
        properties={"query": _TEXT},
        required=(),
    ),
}
"""By the tool's type, which is also the function's name."""

_BY_ITEM = {builtin.item: name for name, builtin in BUILTINS.items()}


class BuiltinTool(msgspec.Struct):
    """A tool of a known type. Shells of a container and searches by the server aren't the
    client's."""

    type: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    environment: Any = None
    execution: str | None = None

    def definition(self) -> FunctionDef | None:
        """The function; None where the client doesn't run it."""
        kind = self.environment.get("type") if isinstance(self.environment, dict) else "local"
        if kind != "local" or (self.type == "tool_search" and self.execution != "client"):
            return None
        definition = BUILTINS[self.type].definition
        if self.description:
            definition.description = self.description
        if self.parameters:
            definition.parameters = self.parameters
        return definition


def call_fields(name: str, values: dict[str, Any]) -> dict[str, Any] | None:
    """What the item of a call holds beside its ids; None where the call lacks what it needs."""
    builtin = BUILTINS[name]
    if any(values.get(field) is None for field in builtin.required):
        return None
    if values.get("type") == "delete_file":
        values = {key: value for key, value in values.items() if key != "diff"}
    elif name == "apply_patch" and values.get("diff") is None:
        return None
    more = {"execution": "client"} if name == "tool_search" else {}
    return {builtin.holds: {**builtin.fixed, **values}, **more}


class BuiltinItem(msgspec.Struct):
    """An earlier call of such a tool, a result of one, or a call that a server ran (``mcp_call``,
    which holds its result too). call_id: local shells' results have it in ``id``."""

    type: str
    id: str | None = None
    call_id: str | None = None
    action: Any = None
    operation: Any = None
    arguments: Any = None
    name: str | None = None
    output: Any = None
    error: Any = None
    status: str | None = None
    tools: list[msgspec.Raw] = []

    @property
    def key(self) -> str:
        """By what a result finds its call; a search that the vendor's server made has nothing."""
        if self.type.startswith("tool_search"):
            return self.call_id or ""
        return self.call_id or self.id or ""

    @property
    def tool(self) -> str | None:
        """The name of the tool that is called; None where the item is no call."""
        return (self.name or "mcp") if self.type == "mcp_call" else _BY_ITEM.get(self.type)

    def given(self) -> str:
        """The call's arguments, as JSON text of an object."""
        if self.type == "mcp_call" or isinstance(self.arguments, str):
            return self.arguments if isinstance(self.arguments, str) else "{}"
        found = next((v for v in (self.action, self.operation, self.arguments) if v), {})
        if not isinstance(found, dict):
            return "{}"
        plain = {k: v for k, v in found.items() if v is not None and (k, v) not in _IMPLIED}
        return encode(plain).decode()

    def told(self, found: list[str]) -> str:
        """The result's text. found: the tools that a search brought, as they are called."""
        if self.type == "tool_search_output":
            return "Tools found: " + ", ".join(found) if found else "No tools found."
        output = self.output if self.error is None else {"error": self.error}
        if isinstance(output, list):
            text = "\n".join(filter(None, map(_chunk, output)))
        else:
            text = output if isinstance(output, str) else "" if output is None else _json(output)
        if text and self.status == "failed":
            return f"{self.status}: {text}"
        return text or (self.status or "")


_IMPLIED = [("type", "exec"), ("env", {})]
RESULTS = frozenset(("local_shell_call_output", "shell_call_output", "apply_patch_call_output")) | {
    "tool_search_output"
}
CALLS = frozenset(_BY_ITEM) | {"mcp_call"}


def _chunk(chunk: Any) -> str:
    """One command's output: what it wrote, and how it ended unless that was well."""
    if not isinstance(chunk, dict):
        return _json(chunk)
    outcome = chunk.get("outcome")
    ended = outcome if isinstance(outcome, dict) else {}
    bad = ended.get("type") != "exit" or ended.get("exit_code") != 0
    texts = [chunk.get("stdout"), chunk.get("stderr"), _json(ended) if ended and bad else ""]
    return "\n".join(text for text in texts if isinstance(text, str) and text)


def _json(value: Any) -> str:
    return encode(value).decode()
