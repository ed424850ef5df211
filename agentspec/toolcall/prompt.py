"""A request's messages and tools as plain turns for a chat template."""

from __future__ import annotations

import json
from string import Template
from typing import Any

from agentspec.wire.chat import ChatRequest, ContentPart, Message, ToolCall
from agentspec.wire.errors import InvalidRequest
from agentspec.wire.surrogates import mended

from .format import ToolFormat
from .shorten import full, show_tools

_TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})


def build_turns(request: ChatRequest, fmt: ToolFormat) -> list[dict[str, str]]:
    """Turns ``{"role", "content"}`` with roles system, user and assistant only.

    System and developer messages are merged into one leading turn, which also shows the tools
    (unless tool_choice is "none"); tool results become turns of the format's result role; earlier
    calls are written as the model writes them. Raises ``InvalidRequest`` naming the content part
    that is not text.
    """
    system: list[str] = []
    turns: list[dict[str, str]] = []
    results = False
    for index, message in enumerate(request.messages):
        text = message_text(message, index)
        if message.role in ("system", "developer"):
            system.append(text)
            continue
        was_result, results = results, message.role in ("tool", "function")
        if results:
            wrapped = f"{fmt.result_open}{text}{fmt.result_close}"
            if was_result:
                turns[-1]["content"] += "\n" + wrapped
            else:
                turns.append({"role": fmt.result_role, "content": wrapped})
        else:
            text += _calls_text(message.tool_calls or [], fmt)
            turns.append({"role": message.role, "content": text})
    if tools := tools_text(request, fmt):
        system.append(tools)
    return joined_system(system, turns)


def joined_system(system: list[str], turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """``turns`` behind one system turn of what texts there are."""
    texts = [text for text in system if text]
    return [{"role": "system", "content": "\n\n".join(texts)}, *turns] if texts else turns


def tools_text(request: ChatRequest, fmt: ToolFormat) -> str:
    """What the system turn says about the tools; empty where none may be called."""
    if not request.tools or request.tool_choice == "none":
        return ""
    shown = show_tools([tool.function for tool in request.tools], fmt.tools_budget_chars)
    example = fmt.render_calls([("tool_name", '{"argument": "value"}')])
    return Template(fmt.system).substitute(tools=shown, example=example)


def tools_saved_chars(request: ChatRequest, fmt: ToolFormat) -> int:
    """Characters by which the tools' text is shorter than the tools in full."""
    if not request.tools or request.tool_choice == "none":
        return 0
    functions = [tool.function for tool in request.tools]
    return len(full(functions)) - len(show_tools(functions, fmt.tools_budget_chars))


def message_text(message: Message, index: int) -> str:
    """Its text. Raises ``InvalidRequest`` naming the content part that is not text."""
    if isinstance(message.content, list):
        for j, part in enumerate(message.content):
            _check_part(part, f"messages[{index}].content[{j}]")
    return message.text()


def _check_part(part: ContentPart, param: str) -> None:
    if part.type in _TEXT_PARTS:
        return
    raise InvalidRequest(
        f"Invalid value for '{param}': this model takes text only, not '{part.type}'.",
        param=param,
        code="unsupported_content",
    )


def _calls_text(calls: list[ToolCall], fmt: ToolFormat) -> str:
    if not calls:
        return ""
    return fmt.render_calls(
        [(c.function.name or "", _arguments(c.function.arguments)) for c in calls]
    )


def _arguments(text: str | None) -> str:
    """Arguments in the canonical spelling; text that is not JSON is shown as a JSON string.

    Half a surrogate pair, which a tokenizer can't read, is shown as U+FFFD: the conversation goes
    on."""
    try:
        value = json.loads(mended(text)) if text and text.strip() else {}
    except (ValueError, RecursionError):
        value = text
    return json.dumps(value, ensure_ascii=False)
