"""The tools of a Responses request as functions of a chat request, and the way back by name.

Namespaces are flattened. A custom tool becomes a function with one string, ``input``, whose
``pattern`` is its grammar: our engine then generates nothing else. Tools of a known type that the
client runs are functions too (``responses_builtin.py``); those that only a vendor's own servers
could run are left out, and a choice that needs one is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .chat import FunctionDef, Tool
from .errors import InvalidRequest
from .fields import decode, kind_of
from .lark import GrammarError, to_pattern
from .names import ToolName, ToolNames
from .responses import CustomTool, FunctionTool, GrammarFormat, NamespaceTool
from .responses_builtin import BUILTINS, BuiltinTool
from .responses_served import COMPUTERS
from .spelling import Name

INPUT = "input"
_FUNCTION = msgspec.json.Decoder(FunctionTool)
_CUSTOM = msgspec.json.Decoder(CustomTool)
_BUILTIN = msgspec.json.Decoder(BuiltinTool)
_NAMESPACE = msgspec.json.Decoder(NamespaceTool)


@dataclass(frozen=True, slots=True)
class Offered:
    """A tool: its function but for the name, and where it lies in the request."""

    tool: ToolName
    definition: FunctionDef
    where: str


@dataclass(slots=True)
class ToolSet:
    """names: what the client calls the tools; offered: those that the model is shown."""

    names: ToolNames = field(default_factory=ToolNames)
    offered: list[Offered] = field(default_factory=list)

    @property
    def tools(self) -> list[Tool]:
        """What the model is offered."""
        return [
            Tool(msgspec.structs.replace(one.definition, name=self._flat(one)))
            for one in self.offered
        ]

    def _flat(self, one: Offered) -> str:
        return self.names.flat(one.tool.name, one.tool.namespace)

    def spelling(self) -> Iterator[Name]:
        """The tools' fields in chat's words and in the request's."""
        for index, one in enumerate(self.offered):
            chat, schema = f"tools[{index}]", "format" if one.tool.custom else "parameters"
            yield Name(
                f"{chat}.function.parameters", f"{one.where}.{schema}", whole=one.tool.custom
            )
            yield Name(f"{chat}.function", one.where)
            yield Name(chat, one.where)

    def add(self, raws: list[msgspec.Raw], where: str, namespace: str | None = None) -> None:
        """Take the tools of one list, which lies at ``where``. A name that comes twice counts once.

        Raises ``InvalidRequest`` naming the field of a tool that cannot be offered.
        """
        for index, raw in enumerate(raws):
            at = f"{where}[{index}]"
            kind = kind_of(raw, at).type
            if kind == "function":
                tool = decode(_FUNCTION, raw, at)
                definition = FunctionDef("", tool.description, tool.parameters, tool.strict)
                self._offer(ToolName(tool.name, namespace), definition, at)
            elif kind == "custom":
                tool = decode(_CUSTOM, raw, at)
                definition = FunctionDef("", tool.description, _parameters(tool.format, at))
                self._offer(ToolName(tool.name, namespace, custom=True), definition, at)
            elif kind in BUILTINS and namespace is None:
                definition = decode(_BUILTIN, raw, at).definition()
                known = self._offered(None, kind)
                if definition is not None and not (known and known.tool.builtin):
                    self._offer(ToolName(kind, builtin=True), definition, at)
            elif kind in COMPUTERS:
                raise InvalidRequest(
                    "Computer use can only be offered to models of OpenAI's own servers.",
                    param=f"{at}.type",
                    code="unsupported_tool",
                )
            elif kind == "namespace" and namespace is None:
                inner = decode(_NAMESPACE, raw, at)
                self.add(inner.tools, f"{at}.tools", inner.name)

    def _offer(self, tool: ToolName, definition: FunctionDef, where: str) -> None:
        if self.names.add(tool):
            self.offered.append(Offered(tool, definition, where))
            return
        first = self._offered(tool.namespace, tool.name)
        both = first is not None and first.where.startswith("tools[")
        if both and where.startswith("tools["):
            where += ".type" if tool.builtin else ".name"
            raise InvalidRequest(
                f"Invalid '{where}': the name '{tool.name[:64]}' is used by another tool. "
                "Tool names must be unique.",
                param=where,
                code="invalid_value",
            )

    def _offered(self, namespace: str | None, name: str) -> Offered | None:
        key = (namespace, name)
        return next((o for o in self.offered if (o.tool.namespace, o.tool.name) == key), None)

    def choose(self, choice: str | dict[str, Any] | None) -> str | dict[str, Any] | None:
        """The ``tool_choice`` of the chat request; tools that it rules out are dropped here.

        Raises ``InvalidRequest``.
        """
        if isinstance(choice, str) or choice is None:
            if choice not in (None, "auto", "none", "required"):
                raise _not_found(choice)
            if choice == "required" and not self.offered:
                raise _nothing_to_call()
            return choice if self.offered else None
        if choice.get("type") == "allowed_tools":
            return self._allowed(choice)
        name = self._flat_of(choice)
        if name not in map(self._flat, self.offered):
            raise _not_found(choice.get("name") or choice.get("type"))
        return {"type": "function", "function": {"name": name}}

    def _allowed(self, choice: dict[str, Any]) -> str | None:
        listed = choice.get("tools") or []
        if not isinstance(listed, list):
            raise _bad_choice("tools", "expected a list of tools")
        mode = _mode(choice.get("mode"))
        allowed = {self._flat_of(entry) for entry in listed}
        offered = set(map(self._flat, self.offered))
        for index, entry in enumerate(listed):
            kind = entry.get("type") if isinstance(entry, dict) else None
            if kind in ("function", "custom") and self._flat_of(entry) not in offered:
                raise _not_found(entry.get("name"), f"tool_choice.tools[{index}]")
        self.offered = [one for one in self.offered if self._flat(one) in allowed]
        if mode == "required" and not self.offered:
            raise _nothing_to_call()
        return mode if self.offered else None

    def _flat_of(self, entry: Any) -> str:
        kind = entry.get("type") if isinstance(entry, dict) else None
        if isinstance(kind, str) and kind in BUILTINS:
            return self.names.flat(kind)
        if kind not in ("function", "custom") or not isinstance(entry.get("name"), str):
            return ""
        namespace = entry.get("namespace")
        return self.names.flat(entry["name"], namespace if isinstance(namespace, str) else None)


def _not_found(name: Any, param: str = "tool_choice") -> InvalidRequest:
    return InvalidRequest(
        f"Tool choice '{str(name)[:64]}' not found in 'tools' parameter, or it can only be run by "
        "the vendor's own servers.",
        param=param,
        code="invalid_value",
    )


def _nothing_to_call() -> InvalidRequest:
    return InvalidRequest(
        "Invalid value for 'tool_choice': 'required' is only allowed when 'tools' are given that "
        "can be called here.",
        param="tool_choice",
        code="invalid_value",
    )


def _mode(mode: Any) -> str:
    if mode not in (None, "auto", "required"):
        raise _bad_choice("mode", "expected 'auto' or 'required'")
    return mode or "auto"


def _bad_choice(name: str, reason: str) -> InvalidRequest:
    where = f"tool_choice.{name}"
    return InvalidRequest(
        f"Invalid value for '{where}': {reason}.", param=where, code="invalid_value"
    )


def _parameters(wanted: GrammarFormat | None, where: str) -> dict[str, Any]:
    """The schema of a custom tool's arguments."""
    text: dict[str, Any] = {"type": "string"}
    if wanted is not None and wanted.type not in ("text", "grammar"):
        raise InvalidRequest(
            f"Invalid value: '{wanted.type[:64]}'. Supported values are: 'text' and 'grammar'.",
            param=f"{where}.format.type",
            code="invalid_value",
        )
    if wanted is not None and wanted.type == "grammar":
        text["pattern"] = _pattern(wanted, f"{where}.format")
    return {
        "type": "object",
        "properties": {INPUT: text},
        "required": [INPUT],
        "additionalProperties": False,
    }


def _pattern(wanted: GrammarFormat, where: str) -> str:
    definition = wanted.definition or ""
    if wanted.syntax == "regex":
        return f"^(?:{definition})$"
    if wanted.syntax != "lark":
        raise InvalidRequest(
            f"Invalid value: '{wanted.syntax}'. Supported values are: 'lark' and 'regex'.",
            param=f"{where}.syntax",
            code="invalid_value",
        )
    try:
        return f"^(?:{to_pattern(definition)})$"
    except GrammarError as error:
        raise InvalidRequest(
            f"This grammar cannot be enforced here: {error}.",
            param=f"{where}.definition",
            code="unsupported_grammar",
        ) from None
