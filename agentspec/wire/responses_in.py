"""A Responses request -> a chat request, and what must be remembered for the way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .canonical import Conversation, Place, content_of
from .chat import (
    ChatRequest,
    FunctionCall,
    JsonSchemaFormat,
    Message,
    ResponseFormat,
    ToolCall,
    encode,
)
from .errors import InvalidRequest
from .fields import Typed, decode, kind_of, missing
from .opaque import unseal
from .responses import (
    CallItem,
    CompactionItem,
    MessageItem,
    OutputItem,
    ReasoningItem,
    ReferenceItem,
    ResponsesRequest,
    TextFormat,
    ToolsItem,
)
from .responses_builtin import CALLS, RESULTS, BuiltinItem
from .responses_parts import parts_of, split_output
from .responses_served import SERVED, ServedItem
from .responses_tools import INPUT, ToolSet
from .spelling import Name

MAX_REFERENCES = 2000
SUMMARY = "Summary of the conversation so far:\n\n"
_ROLES = frozenset({"system", "developer", "user", "assistant"})
_MESSAGE = msgspec.json.Decoder(MessageItem)
_CALL = msgspec.json.Decoder(CallItem)
_OUTPUT = msgspec.json.Decoder(OutputItem)
_REASONING = msgspec.json.Decoder(ReasoningItem)
_COMPACTION = msgspec.json.Decoder(CompactionItem)
_REFERENCE = msgspec.json.Decoder(ReferenceItem)
_TOOLS = msgspec.json.Decoder(ToolsItem)
_BUILTIN = msgspec.json.Decoder(BuiltinItem)
_SERVED = msgspec.json.Decoder(ServedItem)


class _Named(msgspec.Struct):
    name: str | None = None
    tools: list[msgspec.Raw] = []


_NAMED = msgspec.json.Decoder(_Named)
REFERENCE = "item_reference"


class Earlier(msgspec.Struct):
    """What ``previous_response_id`` stands for. tools: those of ``additional_tools`` items;
    call_ids: of calls whose results may name the call's item instead, by the item's id."""

    messages: list[Message] = []
    tools: list[msgspec.Raw] = []
    call_ids: dict[str, str] = {}


@dataclass(slots=True)
class Translated:
    """The chat request, and the tools by which its answer is read.

    extras: fields for backends that agentspec doesn't read. places: where the messages come from.
    earlier: the conversation without the instructions and the tools that stood in it, as a later
    turn may refer to them.
    """

    request: ChatRequest
    tools: ToolSet
    extras: dict[str, Any] = field(default_factory=dict)
    earlier: Earlier = field(default_factory=Earlier)
    places: list[Place] = field(default_factory=list)

    def spelling(self) -> Iterator[Name]:
        """The fields of the chat request, as the client knows them."""
        yield from self.tools.spelling()
        for index, place in enumerate(self.places):
            yield from _spelled_message(f"messages[{index}]", place, self.request.messages[index])
        yield from _SPELLING


def _spelled_message(chat: str, place: Place, message: Message) -> Iterator[Name]:
    where = place.where or "previous_response_id"
    exact = place.exact and bool(place.where)
    if message.role == "tool" and exact:
        yield Name(f"{chat}.content", f"{where}.output")
    yield Name(f"{chat}.tool_calls", where, whole=True)
    yield Name(chat, where, whole=not exact)


_SPELLING = (
    Name("messages", "input"),
    Name("max_completion_tokens", "max_output_tokens"),
    Name("max_tokens", "max_output_tokens"),
    Name("response_format.json_schema", "text.format"),
    Name("response_format", "text.format"),
    Name("tool_choice.function", "tool_choice"),
    Name("reasoning_effort", "reasoning.effort"),
    Name("verbosity", "text.verbosity"),
)
Lookup = Callable[[str], bytes | None]


def translate(
    asked: ResponsesRequest,
    *,
    earlier: Earlier | None = None,
    item: Lookup = lambda _: None,
) -> Translated:
    """The chat request that says the same.

    earlier: what ``previous_response_id`` stands for; item: the JSON of the item that a reference
    names. Raises ``InvalidRequest`` naming the field.
    """
    reader = _Reader(item)
    if earlier is not None:
        reader.conversation.messages += earlier.messages
        reader.call_ids |= earlier.call_ids
        reader.offer(earlier.tools, "previous_response_id")
    reader.find_tools(asked.input)
    reader.tools.add(asked.tools or [], "tools")
    reader.read_input(asked.input)
    context = reader.conversation.finish()
    choice = reader.tools.choose(asked.tool_choice)
    instructions = _instructions(asked.instructions)
    request = ChatRequest(
        model=asked.model,
        messages=instructions + context,
        stream=asked.stream,
        max_completion_tokens=asked.max_output_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        seed=asked.seed,
        tools=reader.tools.tools or None,
        tool_choice=choice,
        parallel_tool_calls=asked.parallel_tool_calls if reader.tools.tools else None,
        response_format=_format(asked.text.format if asked.text else None),
        user=asked.user,
        prompt_cache_key=asked.prompt_cache_key,
        agentspec=asked.agentspec,
    )
    if not request.messages:
        raise missing("input")
    extras = {
        "reasoning_effort": asked.reasoning.effort if asked.reasoning else None,
        "verbosity": asked.text.verbosity if asked.text else None,
        "service_tier": asked.service_tier,
    }
    places = [Place("instructions", exact=False)] * len(instructions) + reader.conversation.places()
    kept = Earlier(context, reader.additional, reader.call_ids)
    return Translated(request, reader.tools, extras, kept, places)


def references(asked: ResponsesRequest) -> dict[str, str]:
    """The ids that the request's ``item_reference`` items name, and where they stand.

    Raises ``InvalidRequest``, also where an item is named twice or more than ``MAX_REFERENCES``
    are: a short body could else stand for a conversation of any length.
    """
    found: dict[str, str] = {}
    for raw, where in _items_of(asked.input, REFERENCE):
        name = decode(_REFERENCE, raw, where).id
        if name in found:
            raise InvalidRequest(
                f"Duplicate item found with id '{name[:64]}'. Remove duplicate items from your "
                "input and try again.",
                param=where,
                code="duplicate_item",
            )
        if len(found) == MAX_REFERENCES:
            raise InvalidRequest(
                f"Too many item references: at most {MAX_REFERENCES} are served in one request.",
                param=where,
                code="too_many_references",
            )
        found[name] = where
    return found


def _items_of(
    given: str | list[msgspec.Raw] | None, kind: str
) -> Iterator[tuple[msgspec.Raw, str]]:
    """The input's items of one kind, and where they stand. Raises ``InvalidRequest``."""
    for index, raw in enumerate(given if isinstance(given, list) else ()):
        where = f"input[{index}]"
        told = kind.encode() in bytes(raw)
        if (told or kind == REFERENCE) and _kind(kind_of(raw, where)) == kind:
            yield raw, where


def _kind(typed: Typed) -> str:
    """An item's type. It may be left out of a message, and of a reference, which has no role."""
    return typed.type or ("message" if typed.role is not None or typed.id is None else REFERENCE)


def append_items(context: Earlier, items: list[bytes], tools: ToolSet) -> Earlier:
    """The conversation after an answer. context isn't changed; items: the answer's, as JSON.

    tools: those that the items' calls name.
    """
    reader = _Reader(lambda _: None, tools)
    before = context.messages
    reader.conversation.messages += [msgspec.structs.replace(message) for message in before]
    reader.call_ids |= context.call_ids
    for index, raw in enumerate(items):
        reader.read(raw, f"output[{index}]")
    return Earlier(reader.conversation.finish(), context.tools, reader.call_ids)


class _Reader:
    def __init__(self, item: Lookup, tools: ToolSet | None = None):
        self.conversation = Conversation()
        self.tools = tools or ToolSet()
        self.additional: list[msgspec.Raw] = []
        self.call_ids: dict[str, str] = {}
        self._item = item

    def offer(self, tools: list[msgspec.Raw], where: str) -> None:
        """Tools that hold for later turns too."""
        self.tools.add(tools, where)
        self.additional += tools

    def find_tools(self, given: str | list[msgspec.Raw] | None) -> None:
        """Those that stand in the input: before it is read, since its calls name them."""
        for kind in ("additional_tools", "tool_search_output"):
            for raw, where in _items_of(given, kind):
                self.offer(decode(_TOOLS, raw, where).tools, f"{where}.tools")

    def read_input(self, given: str | list[msgspec.Raw] | None) -> None:
        if isinstance(given, str):
            self.conversation.say("user", given, Place("input", exact=False))
            return
        for index, raw in enumerate(given or ()):
            self.read(raw, f"input[{index}]")

    def read(self, raw: msgspec.Raw | bytes, where: str, *, referred: bool = False) -> None:
        """One input item. Kinds that aren't known are left out."""
        kind = _kind(kind_of(msgspec.Raw(raw), where))
        if kind == "message":
            self._message(decode(_MESSAGE, raw, where), where)
        elif kind in ("function_call", "custom_tool_call"):
            self._call(decode(_CALL, raw, where), where, custom=kind == "custom_tool_call")
        elif kind in ("function_call_output", "custom_tool_call_output"):
            result = decode(_OUTPUT, raw, where)
            texts, images = split_output(result.output or "", f"{where}.output")
            self.conversation.result(result.call_id, "".join(texts), images, Place(where))
        elif kind in CALLS or kind in RESULTS:
            self._builtin(decode(_BUILTIN, raw, where), Place(where, exact=False))
        elif kind in SERVED:
            self._served(decode(_SERVED, raw, where), where)
        elif kind == "reasoning":
            self._reasoning(decode(_REASONING, raw, where))
        elif kind in ("compaction", "compaction_summary"):
            summary = unseal(decode(_COMPACTION, raw, where).encrypted_content)
            if summary:
                self.conversation.say("user", SUMMARY + summary, Place(where))
        elif kind == REFERENCE and not referred:
            self._reference(decode(_REFERENCE, raw, where).id, where)

    def _builtin(self, item: BuiltinItem, place: Place) -> None:
        """A call of a tool that is known by its type, or a result."""
        if item.id and item.call_id and item.tool is not None:
            self.call_ids[item.id] = item.call_id
        if item.tool is not None and item.key:
            name = self.tools.names.flat(item.tool)
            call = ToolCall(FunctionCall(name, item.given()), id=item.key)
            self.conversation.answer(calls=[call], place=place)
        if item.key and (item.type in RESULTS or item.type == "mcp_call"):
            key = self.call_ids.get(item.key, item.key)
            self.conversation.result(key, item.told(self._names_of(item.tools)), [], place)

    def _names_of(self, tools: list[msgspec.Raw]) -> list[str]:
        """What the tools that a search found are called by; those of a namespace one by one."""
        names = []
        for found in map(_NAMED.decode, tools):
            inner = [tool.name for tool in map(_NAMED.decode, found.tools) if tool.name]
            names += [self.tools.names.flat(name, found.name) for name in inner]
            if found.name and not inner:
                names.append(self.tools.names.flat(found.name))
        return names

    def _served(self, item: ServedItem, where: str) -> None:
        """What a vendor's server ran, or what was done at a computer and how that looks now."""
        place, call = Place(where, exact=False), item.called()
        if not item.key:
            return
        if call is not None:
            name, arguments = self.tools.names.flat(call[0]), call[1]
            made = ToolCall(FunctionCall(name, arguments), id=item.key)
            self.conversation.answer(calls=[made], place=place)
            if item.type != "computer_call":
                self.conversation.result(item.key, item.told(), [], place)
        elif item.type == "computer_call_output":
            screen = item.screen()
            shown = [] if screen is None else parts_of([screen], f"{where}.output")
            self.conversation.result(item.key, "The screen:" if shown else "", shown, place)

    def _reference(self, name: str, where: str) -> None:
        found = self._item(name)
        if found is None:
            raise InvalidRequest(
                f"Item with id '{name}' not found.", param=where, code="item_not_found"
            )
        self.read(found, where, referred=True)

    def _message(self, message: MessageItem, where: str) -> None:
        if message.role not in _ROLES:
            raise InvalidRequest(
                f"Invalid value: '{message.role[:64]}'. Supported values are: 'assistant', "
                "'developer', 'system', and 'user'.",
                param=f"{where}.role",
                code="invalid_value",
            )
        content = message.content or ""
        if not isinstance(content, str):
            content = content_of(parts_of(content, f"{where}.content"))
        if message.role == "assistant":
            self.conversation.answer(content, place=Place(where))
        else:
            self.conversation.say(message.role, content, Place(where))

    def _call(self, call: CallItem, where: str, *, custom: bool) -> None:
        arguments = call.arguments or "{}"
        if custom:
            arguments = encode({INPUT: call.input or ""}).decode()
        name = self.tools.names.flat(call.name, call.namespace)
        made = ToolCall(FunctionCall(name, arguments), id=call.call_id)
        self.conversation.answer(calls=[made], place=Place(where))

    def _reasoning(self, item: ReasoningItem) -> None:
        text = unseal(item.encrypted_content)
        if text is None:
            told = item.content or item.summary or []
            text = "\n\n".join(part.text for part in told)
        self.conversation.think(text)


def _instructions(given: str | list[msgspec.Raw] | None) -> list[Message]:
    if isinstance(given, str):
        return [Message("system", given)] if given else []
    reader = _Reader(lambda _: None)
    for index, raw in enumerate(given or ()):
        reader.read(raw, f"instructions[{index}]")
    return reader.conversation.finish()


def _format(wanted: TextFormat | None) -> ResponseFormat | None:
    if wanted is None or wanted.type == "text":
        return None
    if wanted.type != "json_schema":
        return ResponseFormat(wanted.type)
    schema = JsonSchemaFormat(
        wanted.name or "response", wanted.schema, wanted.description, wanted.strict
    )
    return ResponseFormat("json_schema", schema)
