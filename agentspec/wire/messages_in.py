"""A Messages request -> a chat request, and what must be remembered for the way back."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .canonical import Conversation, content_of, image_part, text_part
from .chat import (
    ChatRequest,
    ContentPart,
    FunctionCall,
    FunctionDef,
    JsonSchemaFormat,
    Message,
    ResponseFormat,
    Tool,
    ToolCall,
    encode,
)
from .errors import InvalidRequest
from .fields import decode, kind_of
from .messages import Block, MessageParam, MessagesRequest, OutputFormat, ToolResult, ToolUse
from .messages_errors import ThreadUnsupported
from .names import ToolName, ToolNames, flat
from .opaque import unseal

# Claude Code's attribution line; its checksum changes from turn to turn, and with it the prompt's
# first tokens, so that nothing of the conversation would be found in a prefix cache.
BILLING = "x-anthropic-billing-header:"
_ROLES = ("user", "assistant", "system")
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}
_BLOCK = msgspec.json.Decoder(Block)
_USE = msgspec.json.Decoder(ToolUse)
_RESULT = msgspec.json.Decoder(ToolResult)


@dataclass(slots=True)
class Translated:
    """The chat request, and the tools by which its answer is read."""

    request: ChatRequest
    names: ToolNames
    extras: dict[str, Any] = field(default_factory=dict)


def translate(asked: MessagesRequest, *, strip_billing: bool) -> Translated:
    """The chat request that says the same.

    strip_billing: leave the attribution line out (for models that aren't the vendor's own).
    Raises ``InvalidRequest`` naming the field.
    """
    if asked.thread is not None:
        raise ThreadUnsupported("Message threads are not supported here.", param="thread")
    reader = _Reader()
    for index, message in enumerate(asked.messages):
        reader.read(message, f"messages[{index}]")
    system = _system(asked.system, strip_billing)
    names = ToolNames()
    tools = _tools(asked, names, reader.found_tools)
    config = asked.output_config
    one = asked.tool_choice is not None and asked.tool_choice.disable_parallel_tool_use
    request = ChatRequest(
        model=asked.model,
        messages=([Message("system", system)] if system else []) + reader.conversation.finish(),
        stream=asked.stream,
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        stop=asked.stop_sequences or None,
        tools=tools or None,
        tool_choice=_choice(asked) if tools else None,
        parallel_tool_calls=False if one and tools else None,
        response_format=_format(asked.output_format or (config.format if config else None)),
        user=asked.metadata.user_id if asked.metadata else None,
        agentspec=asked.agentspec,
    )
    effort = config.effort if config else None
    return Translated(request, names, {"reasoning_effort": effort})


def _system(given: str | list[Block] | None, strip_billing: bool) -> str:
    texts = [given] if isinstance(given, str) else [block.text or "" for block in given or ()]
    if strip_billing:
        texts = [_without_billing(text) for text in texts]
    return "\n\n".join(text for text in texts if text)


def _without_billing(text: str) -> str:
    if not text.startswith(BILLING):
        return text
    return text.partition("\n")[2]


class _Reader:
    """Reads the messages. found_tools: names that a tool search brought up."""

    def __init__(self) -> None:
        self.conversation = Conversation()
        self.found_tools: set[str] = set()

    def read(self, message: MessageParam, where: str) -> None:
        if message.role not in _ROLES:
            raise InvalidRequest(
                f"{where}.role: Input should be 'user' or 'assistant'", param=f"{where}.role"
            )
        if isinstance(message.content, str):
            self._plain(message.role, message.content)
        elif message.role == "assistant":
            self._assistant(message.content, f"{where}.content")
        else:
            self._user(message.role, message.content, f"{where}.content")

    def _plain(self, role: str, text: str) -> None:
        if role == "assistant":
            self.conversation.answer(text)
        else:
            self.conversation.say(role, text)

    def _assistant(self, raws: list[msgspec.Raw], where: str) -> None:
        for index, raw in enumerate(raws):
            at = f"{where}[{index}]"
            kind = kind_of(raw, at).type
            if kind == "tool_use":
                use = decode(_USE, raw, at)
                call = FunctionCall(flat(use.name), encode(use.input).decode())
                self.conversation.answer(call=ToolCall(call, id=use.id))
            elif kind == "thinking":
                block = decode(_BLOCK, raw, at)
                text = unseal(block.signature)
                self.conversation.think(block.thinking or "" if text is None else text)
            elif kind == "text":
                self.conversation.answer(decode(_BLOCK, raw, at).text or "")

    def _user(self, role: str, raws: list[msgspec.Raw], where: str) -> None:
        """Results first, wherever they stand: they must follow their calls."""
        others: list[ContentPart] = []
        for index, raw in enumerate(raws):
            at = f"{where}[{index}]"
            kind = kind_of(raw, at).type
            if kind == "tool_result":
                self._result(decode(_RESULT, raw, at), at)
            elif kind is not None:
                others += self._parts([decode(_BLOCK, raw, at)], [at])
        if others:
            self.conversation.say(role, content_of(others))

    def _result(self, result: ToolResult, where: str) -> None:
        blocks = result.content or ""
        if isinstance(blocks, str):
            parts = [text_part(blocks)]
        else:
            parts = self._parts(blocks, (f"{where}.content[{i}]" for i in range(len(blocks))))
        text = "\n".join(part.text or "" for part in parts if part.type == "text")
        if result.is_error:
            text = f"Error: {text}" if text else "Error"
        images = [part for part in parts if part.type != "text"]
        self.conversation.result(result.tool_use_id, text, images)

    def _parts(self, blocks: list[Block], places: Iterable[str]) -> list[ContentPart]:
        made: list[ContentPart] = []
        for block, where in zip(blocks, places, strict=True):
            if block.type == "text":
                made.append(text_part(block.text or ""))
            elif block.type == "image":
                made.append(image_part(_image_url(block.source or {}, where)))
            elif block.type == "document":
                made.append(text_part(_document(block, where)))
            elif block.type == "tool_reference" and block.tool_name:
                self.found_tools.add(block.tool_name)
                made.append(text_part(f"Tool found: {block.tool_name}"))
        return made


def _image_url(source: dict[str, Any], where: str) -> str:
    if source.get("type") == "url" and isinstance(source.get("url"), str):
        return source["url"]
    if source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    raise _unsupported(where, "an image that is neither 'base64' nor 'url'")


def _document(block: Block, where: str) -> str:
    source = block.source or {}
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return f"{block.title}\n\n{source['data']}" if block.title else source["data"]
    raise _unsupported(where, "a document that is not plain text")


def _unsupported(where: str, what: str) -> InvalidRequest:
    return InvalidRequest(
        f"{where}: {what} is not supported here", param=where, code="unsupported_content"
    )


def _tools(asked: MessagesRequest, names: ToolNames, found: set[str]) -> list[Tool]:
    """The tools that the model is shown: deferred ones only once a search has found them."""
    made: list[Tool] = []
    for tool in asked.tools or ():
        if tool.input_schema is None or not tool.name:
            continue
        if tool.defer_loading and tool.name not in found:
            continue
        name = names.add(ToolName(tool.name))
        if name is not None:
            made.append(Tool(FunctionDef(name, tool.description, tool.input_schema, tool.strict)))
    return made


def _choice(asked: MessagesRequest) -> str | dict[str, Any] | None:
    choice = asked.tool_choice
    if choice is None:
        return None
    if choice.type == "tool":
        return {"type": "function", "function": {"name": flat(choice.name or "")}}
    if choice.type not in _CHOICES:
        raise InvalidRequest(
            "tool_choice.type: Input should be 'auto', 'any', 'tool' or 'none'",
            param="tool_choice.type",
        )
    return _CHOICES[choice.type]


def _format(wanted: OutputFormat | None) -> ResponseFormat | None:
    if wanted is None or wanted.type != "json_schema":
        return None
    return ResponseFormat("json_schema", JsonSchemaFormat("answer", wanted.schema, strict=True))
