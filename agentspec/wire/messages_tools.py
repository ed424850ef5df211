"""The tools of a Messages request as functions of a chat request, and what may be chosen of them.

Tools that Anthropic knows by kind and its clients run (bash, the text editor, the memory) are
offered with the input that Anthropic's documentation gives them; a call of one is a ``tool_use``
like any other. Those that its servers run are left out: a choice that needs one is refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from .chat import FunctionDef, Tool
from .errors import InvalidRequest
from .messages import MessagesRequest, ToolParam
from .names import ToolName, ToolNames

_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_KNOWN = re.compile(r"(bash|text_editor|memory)_\d{8}")
_COMPUTER = re.compile(r"computer_\d{8}")
_TEXT: dict[str, Any] = {"type": "string"}
_EDITS: dict[str, Any] = {
    "path": _TEXT,
    "file_text": _TEXT,
    "old_str": _TEXT,
    "new_str": _TEXT,
    "insert_line": {"type": "integer"},
    "insert_text": _TEXT,
    "view_range": {"type": "array", "items": {"type": "integer"}},
}


def _commands(*names: str, **more: Any) -> dict[str, Any]:
    properties = {"command": {"type": "string", "enum": list(names)}} | _EDITS | more
    return {"type": "object", "properties": properties, "required": ["command"]}


# https://docs.claude.com/en/docs/agents-and-tools/tool-use/ (bash-tool, text-editor-tool,
# memory-tool).
_BY_KIND: dict[str, tuple[str, dict[str, Any]]] = {
    "bash": (
        "Run a command in a persistent bash session; without one, 'restart' starts it anew.",
        {
            "type": "object",
            "properties": {"command": _TEXT, "restart": {"type": "boolean"}},
            "minProperties": 1,
        },
    ),
    "text_editor": (
        "View, create and edit text files.",
        _commands("view", "create", "str_replace", "insert", "undo_edit"),
    ),
    "memory": (
        "Store and read files of a memory directory, /memories.",
        _commands(
            *("view", "create", "str_replace", "insert", "delete", "rename"),
            old_path=_TEXT,
            new_path=_TEXT,
        ),
    ),
}


@dataclass(slots=True)
class Tools:
    """The tools of one request.

    names: of those that clients run; functions: by the client's name, which of the request's tools
    each is, and what it is to a model. refused: why the request can't be served, where it can't.
    """

    asked: MessagesRequest
    names: ToolNames = field(default_factory=ToolNames)
    functions: dict[str, tuple[int, Tool]] = field(default_factory=dict)
    refused: list[InvalidRequest] = field(default_factory=list)

    def __post_init__(self) -> None:
        for tool in self.asked.tools or ():
            if tool.name and _definition(tool) is not None:
                self.names.add(ToolName(tool.name))

    def offer(self, found: set[str]) -> list[Tool]:
        """What the model is shown: deferred tools only once a search has found them, or where they
        are chosen. found: the names that searches brought up."""
        choice = self.asked.tool_choice
        named = choice.name if choice is not None and choice.type == "tool" else None
        seen: set[str] = set()
        for index, tool in enumerate(self.asked.tools or ()):
            where = f"tools[{index}]"
            definition = _definition(tool)
            if not tool.name and (definition or tool.type in (None, "custom")):
                self.refused.append(_bad(f"{where}.name", "Field required"))
            elif definition is None and tool.type in (None, "custom"):
                self.refused.append(_bad(f"{where}.input_schema", "Field required"))
            elif _COMPUTER.fullmatch(tool.type or ""):
                words = "Computer use can only be offered to models of Anthropic's own servers"
                self.refused.append(_bad(f"{where}.type", words))
            elif definition and tool.name in seen:
                self.refused.append(_bad(f"{where}.name", "Tool names must be unique"))
            elif definition and not (tool.defer_loading and tool.name not in found | {named}):
                name = self.names.flat(tool.name)
                self.functions[tool.name] = index, Tool(FunctionDef(name, *definition))
            if definition:
                seen.add(tool.name)
        return [tool for _, tool in self.functions.values()]

    def choose(self) -> str | dict[str, Any] | None:
        """The chat request's ``tool_choice``."""
        choice = self.asked.tool_choice
        if choice is None:
            return None
        if choice.type not in (*_CHOICES, "tool"):
            kinds = "Input should be 'auto', 'any', 'tool' or 'none'"
            self.refused.append(_bad("tool_choice.type", kinds))
            return None
        if choice.type in ("any", "tool") and not self.asked.tools:
            words = "may only be specified while providing tools"
            self.refused.append(_bad("tool_choice", words))
            return None
        if choice.type == "tool":
            return self._named(choice.name)
        if choice.type == "any" and not self.functions:
            words = (
                "'any' needs a tool that is not deferred"
                if any(tool.defer_loading for tool in self.asked.tools or ())
                else "none of the tools can be run here: they need Anthropic's servers"
            )
            self.refused.append(_bad("tool_choice", words))
        return _CHOICES[choice.type] if self.functions else None

    def _named(self, name: str | None) -> dict[str, Any] | None:
        given = {tool.name for tool in self.asked.tools or ()}
        if not name:
            self.refused.append(_bad("tool_choice.name", "Field required"))
        elif name not in given:
            words = f"Tool '{name[:64]}' not found in provided tools"
            self.refused.append(_bad("tool_choice.name", words))
        elif name not in self.functions:
            words = f"'{name[:64]}' cannot be run here: it needs Anthropic's servers"
            self.refused.append(_bad("tool_choice.name", words))
        else:
            return {"type": "function", "function": {"name": self.names.flat(name)}}
        return None


def _definition(tool: ToolParam) -> tuple[str | None, dict[str, Any]] | None:
    """(description, schema) of a tool that a client runs. ``strict`` stays out: here every call is
    held to its schema, and OpenAI's word for it allows a part of JSON Schema only."""
    if tool.input_schema is not None:
        return tool.description, tool.input_schema
    known = _KNOWN.fullmatch(tool.type or "")
    return _BY_KIND[known.group(1)] if known else None


def _bad(where: str, words: str) -> InvalidRequest:
    return InvalidRequest(f"{where}: {words}", param=where, code="invalid_value")
