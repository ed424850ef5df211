"""Messages and tools as the model's own chat template takes them, where it shows tools itself.

A model has learnt its tools in its template's wording, not in ours; so that is what it is shown.
Whether a template can is found out by trying: it must show a tool that it is given, and write a
call so that the format's parser reads it back, and the result behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from agentspec.wire.chat import ChatRequest, FunctionCall, FunctionDef, Message, ToolCall

from .format import ToolFormat
from .parser import CallEnd, Parser
from .prompt import joined_system, message_text
from .shorten import brief_definition, full_definition

Turns = list[dict[str, Any]]
Render = Callable[[Turns, Turns | None], str]
"""(turns, tools) -> the prompt. May raise ``ValueError``."""

_QUESTION, _RESULT = "QUESTION-7d1", "RESULT-7d1"
_PROBE = FunctionDef(
    "probe_weather",
    "DESCRIPTION-7d1",
    {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "A town."},
            "days": {"type": "integer", "description": "How many."},
        },
        "required": ["city"],
    },
)
_ARGUMENTS = {"city": "Berlin", "days": 3}


@dataclass(frozen=True, slots=True)
class Native:
    """How a template takes calls. arguments: as a value, or as JSON text. ids: nine letters and
    digits, which all take but those that read a call's name out of its id."""

    arguments: Literal["object", "text"] = "object"
    ids: Literal["plain", "named"] = "plain"


WAYS = tuple(Native(kind, ids) for ids in ("plain", "named") for kind in ("object", "text"))


def native_turns(request: ChatRequest, way: Native) -> Turns:
    """The messages; system and developer ones are one leading turn. Raises ``InvalidRequest``
    naming the content part that is not text.
    """
    system: list[str] = []
    written = _Turns(way)
    for index, message in enumerate(request.messages):
        text = message_text(message, index)
        if message.role in ("system", "developer"):
            system.append(text)
        else:
            written.add(message, text)
    return joined_system(system, written.turns)


@dataclass(slots=True)
class _Turns:
    """Turns so far. called: the client's id of a call -> (its name, the id that is shown)."""

    way: Native
    turns: Turns = field(default_factory=list)
    called: dict[str, tuple[str, str]] = field(default_factory=dict)
    count: int = 0

    def add(self, message: Message, text: str) -> None:
        if message.role in ("tool", "function"):
            asked = message.tool_call_id or ""
            name, shown = self.called.get(asked, (message.name or "", "call00000"))
            result = {"role": "tool", "content": text, "tool_call_id": shown, "name": name}
            self.turns.append(result)
            return
        turn: dict[str, Any] = {"role": message.role, "content": text}
        if message.reasoning_content:
            turn["reasoning_content"] = message.reasoning_content
        if message.tool_calls:
            turn["tool_calls"] = [self._call(call) for call in message.tool_calls]
        self.turns.append(turn)

    def _call(self, call: ToolCall) -> dict[str, Any]:
        name = call.function.name or ""
        number, self.count = self.count, self.count + 1
        shown = f"functions.{name}:{number}" if self.way.ids == "named" else f"call{number:05d}"
        self.called[call.id or ""] = (name, shown)
        text = call.function.arguments or "{}"
        value = _object(text) if self.way.arguments == "object" else text
        return {"id": shown, "type": "function", "function": {"name": name, "arguments": value}}


def _object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"arguments": text}


def native_tools(request: ChatRequest, budget_chars: int) -> Turns | None:
    """The tools as a template takes them, in full or brief; [] where none may be called; None
    where they do not fit into ``budget_chars`` and must be shown shorter than a template would."""
    if not request.tools or request.tool_choice == "none":
        return []
    for definition in (full_definition, brief_definition):
        shown = [definition(tool.function) for tool in request.tools]
        if len(json.dumps(shown, ensure_ascii=False)) <= budget_chars:
            return [{"type": "function", "function": function} for function in shown]
    return None


def probe(render: Render, fmt: ToolFormat) -> Native | None:
    """How a template takes calls, or None where it does not show tools in ``fmt`` by itself."""
    tools: Turns = [{"type": "function", "function": full_definition(_PROBE)}]
    asked = Message("user", _QUESTION)
    call = ToolCall(FunctionCall(_PROBE.name, json.dumps(_ARGUMENTS)), "a")
    answered = [
        Message("assistant", "", tool_calls=[call]),
        Message("tool", _RESULT, tool_call_id="a"),
    ]
    plain = native_turns(ChatRequest("", [asked]), WAYS[0])
    shown, bare = _rendered(render, plain, tools), _rendered(render, plain, None)
    words = (_PROBE.name, "DESCRIPTION-7d1", "city", _QUESTION)
    if not all(word in shown for word in words) or _PROBE.name in bare:
        return None
    for way in WAYS:
        text = _rendered(render, native_turns(ChatRequest("", [asked, *answered]), way), tools)
        if _RESULT in text and _reads(text.rpartition(_QUESTION)[2], fmt):
            return way
    return None


def _rendered(render: Render, turns: Turns, tools: Turns | None) -> str:
    try:
        return render(turns, tools)
    except ValueError:
        return ""


def _reads(text: str, fmt: ToolFormat) -> bool:
    """Whether the parser finds the call, from the answer's beginning or from its mark on."""
    parameters = {_PROBE.name: _PROBE.parameters}
    for start in (text, fmt.open + text.partition(fmt.open)[2]):
        events = Parser(fmt, parameters).feed(start)
        calls = [event for event in events if isinstance(event, CallEnd)]
        if [c.name for c in calls] == [_PROBE.name]:
            return json.loads(calls[0].arguments_text) == _ARGUMENTS
    return False
