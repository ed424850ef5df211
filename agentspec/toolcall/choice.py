"""What form a request demands of its answer: tools, tool_choice, response_format, grammar."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from agentspec.wire.chat import ChatRequest, ResponseFormat, Tool
from agentspec.wire.errors import InvalidRequest

from .detect import UNKNOWN
from .format import ToolFormat
from .schema import check_name, validate_schema
from .strict import check_strict

Calls = Literal["never", "may", "must"]
_CHOICES = ("none", "auto", "required")
_FORMATS = ("json_object", "json_schema", "text")
EMPTY_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {},
    "additionalProperties": False,
}
ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Function:
    """A tool that may be called. ``param`` names its schema's field in the request."""

    name: str
    parameters: dict[str, Any]
    param: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A JSON answer. ``param`` names its schema's field in the request."""

    schema: dict[str, Any] | bool
    name: str
    param: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSpec:
    """The form of one answer; the engine compiles it to a constraint.

    calls: whether calls of ``functions`` may or must be made ("never": there are none).
    max_calls: most calls in the answer.
    answer: the JSON value that the text must be where it is not calls; None: free text.
    grammar: a Lark grammar for the whole answer; excludes the other two.
    """

    format: ToolFormat
    calls: Calls = "never"
    functions: tuple[Function, ...] = ()
    max_calls: int = 1
    answer: Answer | None = None
    grammar: str | None = None

    def key(self) -> bytes:
        """Equal for specs that demand the same; property order counts."""
        functions = [(f.name, f.parameters) for f in self.functions]
        answer = None if self.answer is None else [self.answer.schema]
        parts = (self.format.name, self.calls, functions, self.max_calls, answer, self.grammar)
        return msgspec.json.encode(parts)


def output_spec(request: ChatRequest, fmt: ToolFormat) -> OutputSpec | None:
    """The request's demands, or None when the whole answer is free text.

    Raises ``InvalidRequest`` or ``InvalidSchema`` in OpenAI's wording, naming the field.
    """
    functions = _functions(request.tools or [])
    calls, names = demanded_calls(request.tool_choice, {f.name for f in functions})
    answer = _answer(request.response_format)
    grammar = request.agentspec.grammar if request.agentspec else None
    callable_ = tuple(f for f in functions if f.name in names) if calls != "never" else ()
    if grammar is not None:
        _check_grammar_alone(callable_, answer)
        return OutputSpec(format=fmt, grammar=grammar)
    if calls == "never" and answer is None:
        return None
    if calls != "never" and fmt.name == UNKNOWN:
        raise InvalidRequest(
            "Invalid value for 'tools': how this model writes tool calls is not known, so it "
            "cannot be given tools (the server's setting engine.tool_format names a format).",
            param="tools",
            code="unsupported_parameter",
        )
    one = request.parallel_tool_calls is False
    return OutputSpec(
        format=fmt,
        calls=calls,
        functions=callable_,
        max_calls=1 if one else fmt.max_calls,
        answer=None if calls == "must" else answer,
    )


def _functions(tools: list[Tool]) -> list[Function]:
    seen: set[str] = set()
    functions: list[Function] = []
    for i, tool in enumerate(tools):
        if tool.type != "function":
            raise _bad_value(f"tools[{i}].type", tool.type, ("function",))
        name, param = tool.function.name, f"tools[{i}].function.name"
        check_name(name, param)
        if name in seen:
            raise InvalidRequest(
                f"Invalid '{param}': the function name '{name}' is used by another tool. "
                "Function names must be unique.",
                param=param,
                code="invalid_value",
            )
        seen.add(name)
        where = f"tools[{i}].function.parameters"
        functions.append(Function(name, _parameters(tool, name, where), where))
    return functions


def _parameters(tool: Tool, name: str, param: str) -> dict[str, Any]:
    """The schema of a tool's arguments, always that of an object."""
    schema = tool.function.parameters
    if not schema:
        return EMPTY_PARAMETERS
    validate_schema(
        schema, param, f"function '{name}'", code="invalid_function_parameters", object_root=True
    )
    if tool.function.strict:
        check_strict(schema, param, f"function '{name}'", code="invalid_function_parameters")
    return schema if schema.get("type") == "object" else {**schema, "type": "object"}


def demanded_calls(choice: str | dict[str, Any] | None, names: set[str]) -> tuple[Calls, set[str]]:
    """(whether calls are made, names that may be called). names: of the tools that are offered.

    Raises ``InvalidRequest`` where a ``tool_choice`` is none, or names a tool that isn't offered.
    """
    if choice is None:
        return ("may" if names else "never"), names
    if isinstance(choice, str):
        if choice not in _CHOICES:
            raise _bad_value("tool_choice", choice, _CHOICES)
        if choice == "required":
            _require_tools(names)
            return "must", names
        return ("may" if names and choice == "auto" else "never"), names
    _require_tools(names)
    kind = choice.get("type")
    if kind == "allowed_tools":
        return _allowed_tools(choice, names)
    if kind != "function":
        raise _bad_value("tool_choice.type", kind, ("function", "allowed_tools"))
    return "must", {_named(choice, "tool_choice", names)}


def _allowed_tools(choice: dict[str, Any], names: set[str]) -> tuple[Calls, set[str]]:
    """Chat nests mode and tools one level deeper than Responses; both are understood."""
    where, inner = "tool_choice", choice
    if isinstance(choice.get("allowed_tools"), dict):
        where, inner = "tool_choice.allowed_tools", choice["allowed_tools"]
    mode, tools = inner.get("mode", "auto"), inner.get("tools")
    if mode not in ("auto", "required"):
        raise _bad_value(f"{where}.mode", mode, ("auto", "required"))
    if not isinstance(tools, list) or not tools:
        raise _missing(f"{where}.tools")
    allowed = {_named(tool, f"{where}.tools[{i}]", names) for i, tool in enumerate(tools)}
    return ("must" if mode == "required" else "may"), allowed


def _named(choice: Any, where: str, names: set[str]) -> str:
    function = choice.get("function") if isinstance(choice, dict) else None
    nested = isinstance(function, dict)
    name = (function if nested else choice).get("name") if isinstance(choice, dict) else None
    param = f"{where}.function.name" if nested else f"{where}.name"
    if not isinstance(name, str):
        raise _missing(f"{where}.function.name")
    if name not in names:
        raise InvalidRequest(
            f"Invalid value for '{where}': no function named '{name}' was specified in the "
            "'tools' parameter.",
            param=param,
            code="invalid_value",
        )
    return name


def _require_tools(names: set[str]) -> None:
    if not names:
        raise InvalidRequest(
            "Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are "
            "specified.",
            param="tool_choice",
            code="invalid_value",
        )


def _answer(wanted: ResponseFormat | None) -> Answer | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type == "json_object":
        return Answer(ANY_OBJECT, "json_object", "response_format")
    if wanted.type != "json_schema":
        raise _bad_value("response_format.type", wanted.type, _FORMATS)
    spec = wanted.json_schema
    if spec is None:
        raise _missing("response_format.json_schema")
    check_name(spec.name, "response_format.json_schema.name")
    schema = ANY_OBJECT if spec.schema is None else spec.schema
    validate_schema(schema, "response_format", f"response_format '{spec.name}'")
    if spec.strict:
        check_strict(schema, "response_format", f"response_format '{spec.name}'")
    return Answer(schema, spec.name, "response_format")


def _check_grammar_alone(functions: Iterable[Function], answer: Answer | None) -> None:
    other = "response_format" if answer is not None else "tools" if functions else None
    if other:
        raise InvalidRequest(
            f"Invalid value for 'agentspec.grammar': a grammar rules the whole answer and cannot "
            f"be combined with '{other}'.",
            param="agentspec.grammar",
            code="invalid_value",
        )


def _bad_value(param: str, value: Any, supported: tuple[str, ...]) -> InvalidRequest:
    quoted = [f"'{name}'" for name in supported]
    listed = quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    return InvalidRequest(
        f"Invalid value: '{re.sub(r'[^ -~]', '?', str(value))[:64]}'. "
        f"Supported values are: {listed}.",
        param=param,
        code="invalid_value",
    )


def _missing(param: str) -> InvalidRequest:
    return InvalidRequest(
        f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter"
    )
