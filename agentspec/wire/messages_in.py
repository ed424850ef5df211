"""A Messages request -> a chat request, and what must be remembered for the way back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from .canonical import Conversation, Place, content_of, image_part, text_part
from .chat import (
    ChatRequest,
    ContentPart,
    FunctionCall,
    JsonSchemaFormat,
    Message,
    ResponseFormat,
    ToolCall,
    encode,
)
from .errors import InvalidRequest
from .fields import decode, kind_of
from .messages import (
    Block,
    MessageParam,
    MessagesRequest,
    ToolResult,
    ToolUse,
)
from .messages_errors import ThreadUnsupported
from .messages_served import ServedResult, found_in, told_by
from .messages_tools import Tools
from .names import ToolNames
from .opaque import unseal
from .spelling import Name

# Claude Code's attribution line; its checksum changes from turn to turn, and with it the prompt's
# first tokens, so that nothing of the conversation would be found in a prefix cache.
BILLING = "x-anthropic-billing-header:"
_ROLES = ("user", "assistant", "system")
_BLOCK = msgspec.json.Decoder(Block)
_USE = msgspec.json.Decoder(ToolUse)
_RESULT = msgspec.json.Decoder(ToolResult)
_SERVED = msgspec.json.Decoder(ServedResult)


@dataclass(slots=True)
class Translated:
    """The chat request, and the tools by which its answer is read.

    places: where its messages come from; tools: which of the request's its tools are.
    """

    request: ChatRequest
    names: ToolNames
    extras: dict[str, Any] = field(default_factory=dict)
    places: list[Place] = field(default_factory=list)
    tools: list[int] = field(default_factory=list)

    def spelling(self, schema: str) -> Iterator[Name]:
        """The fields of the chat request, as the client knows them. schema: the answer's field."""
        for index, own in enumerate(self.tools):
            yield Name(f"tools[{index}].function.parameters", f"tools[{own}].input_schema")
            yield Name(f"tools[{index}].function", f"tools[{own}]")
            yield Name(f"tools[{index}]", f"tools[{own}]")
        for index, place in enumerate(self.places):
            chat = f"messages[{index}]"
            own = place.where or "messages"
            content = own if own == "system" else f"{own}.content"
            yield Name(f"{chat}.content", content, whole=not place.exact)
            yield Name(chat, own, whole=True)
        yield Name("stop", "stop_sequences")
        yield Name("max_completion_tokens", "max_tokens")
        yield Name("tool_choice.function", "tool_choice")
        yield Name("response_format.json_schema.schema", schema)
        yield Name("response_format", schema, whole=True)
        yield Name("reasoning_effort", "output_config.effort")
        yield Name("user", "metadata.user_id")


def translate(
    asked: MessagesRequest, *, strip_billing: bool, refused: list[InvalidRequest] | None = None
) -> Translated:
    """The chat request that says the same.

    strip_billing: leave the attribution line out (for models that aren't the vendor's own).
    refused: takes what only a server of the vendor's protocol could serve, each naming its field;
    None: the first is raised. Raises ``InvalidRequest`` naming the field.
    """
    if asked.thread is not None:
        raise ThreadUnsupported("Message threads are not supported here.", param="thread")
    tools = Tools(asked)
    reader = _Reader(tools.names, tools.refused)
    for index, message in enumerate(asked.messages):
        reader.read(message, f"messages[{index}]")
    said = reader.conversation.finish()
    if not said:
        raise _says_nothing(asked)
    system = _system(asked.system, strip_billing)
    shown = [Message("system", system)] if system else []
    offered = tools.offer(reader.found_tools)
    config = asked.output_config
    one = asked.tool_choice is not None and asked.tool_choice.disable_parallel_tool_use
    request = ChatRequest(
        model=asked.model,
        messages=shown + said,
        stream=asked.stream,
        max_tokens=asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        stop=asked.stop_sequences or None,
        tools=offered or None,
        tool_choice=tools.choose(),
        parallel_tool_calls=False if one and offered else None,
        response_format=_format(asked, tools.refused),
        user=asked.metadata.user_id if asked.metadata else None,
        agentspec=asked.agentspec,
    )
    for error in tools.refused:
        error.spelled = True
    if refused is None and tools.refused:
        raise tools.refused[0]
    if refused is not None:
        refused += tools.refused
    effort = config.effort if config else None
    places = [Place("system", exact=False)] * len(shown) + reader.conversation.places()
    indexes = [index for index, _ in tools.functions.values()]
    return Translated(request, tools.names, {"reasoning_effort": effort}, places, indexes)


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
    """Reads the messages. found_tools: names that a tool search brought up; refused: takes what
    can't be shown to a model here."""

    def __init__(self, names: ToolNames, refused: list[InvalidRequest]) -> None:
        self._names = names
        self._refused = refused
        self.conversation = Conversation()
        self.found_tools: set[str] = set()

    def read(self, message: MessageParam, where: str) -> None:
        if message.role not in _ROLES:
            raise InvalidRequest(
                f"{where}.role: Input should be 'user' or 'assistant'", param=f"{where}.role"
            )
        if isinstance(message.content, str):
            self._plain(message.role, message.content, Place(where, exact=False))
        elif message.role == "assistant":
            self._assistant(message.content, f"{where}.content", Place(where, exact=False))
        else:
            self._user(message.role, message.content, f"{where}.content", where)

    def _plain(self, role: str, text: str, place: Place) -> None:
        if role == "assistant":
            self.conversation.answer(text, place=place)
        else:
            self.conversation.say(role, text, place)

    def _assistant(self, raws: list[msgspec.Raw], where: str, place: Place) -> None:
        """One message, whatever the order of its blocks: its text, and the calls behind it. What a
        vendor's server ran in between, and brought to a result, is told as a call and it."""
        texts: list[str] = []
        calls: list[ToolCall] = []
        served: dict[str, ToolCall] = {}
        for index, raw in enumerate(raws):
            at = f"{where}[{index}]"
            kind = kind_of(raw, at).type or ""
            if kind == "tool_use":
                calls.append(self._use(raw, at))
            elif kind in ("server_tool_use", "mcp_tool_use"):
                call = self._use(raw, at)
                served[call.id or ""] = call
            elif kind == "thinking":
                block = decode(_BLOCK, raw, at)
                text = unseal(block.signature)
                self.conversation.think(block.thinking or "" if text is None else text)
            elif kind == "text":
                texts.append(decode(_BLOCK, raw, at).text or "")
            elif kind.endswith("_tool_result"):
                result = decode(_SERVED, raw, at)
                self.found_tools |= found_in(result.content)
                call = served.pop(result.tool_use_id, None)
                if call is not None:
                    self.conversation.answer("".join(texts), [*calls, call], place)
                    self.conversation.result(result.tool_use_id, told_by(result), [], place)
                    texts, calls = [], []
        self.conversation.answer("".join(texts), calls, place)

    def _use(self, raw: msgspec.Raw, where: str) -> ToolCall:
        use = decode(_USE, raw, where)
        call = FunctionCall(self._names.flat(use.name), encode(use.input).decode())
        return ToolCall(call, id=use.id)

    def _user(self, role: str, raws: list[msgspec.Raw], where: str, message: str) -> None:
        """Results first, wherever they stand: they must follow their calls."""
        others: list[ContentPart] = []
        for index, raw in enumerate(raws):
            at = f"{where}[{index}]"
            if kind_of(raw, at).type == "tool_result":
                self._result(decode(_RESULT, raw, at), at)
            else:
                others += self._parts(raw, at)
        if others:
            place = Place(message, exact=len(others) == len(raws) > 1)
            self.conversation.say(role, content_of(others), place)

    def _result(self, result: ToolResult, where: str) -> None:
        blocks = result.content or ""
        parts = [text_part(blocks)] if isinstance(blocks, str) else []
        if not isinstance(blocks, str):
            for index, raw in enumerate(blocks):
                parts += self._parts(raw, f"{where}.content[{index}]")
        text = "\n".join(part.text or "" for part in parts if part.type == "text")
        if result.is_error:
            text = f"Error: {text}" if text else "Error"
        images = [part for part in parts if part.type != "text"]
        self.conversation.result(result.tool_use_id, text, images, Place(where, exact=False))

    def _parts(self, raw: msgspec.Raw, where: str) -> list[ContentPart]:
        """A block as a part of a message; nothing for a kind that isn't known."""
        kind = kind_of(raw, where).type
        if kind not in _KINDS:
            return []
        try:
            return self._read_part(kind, decode(_BLOCK, raw, where), where)
        except Unshowable as error:
            self._refused.append(error)
            return [text_part("")]

    def _read_part(self, kind: str, block: Block, where: str) -> list[ContentPart]:
        if kind == "image":
            return [image_part(_image_url(block.source, where))]
        if kind == "document":
            return [text_part(_document(block, where))]
        if kind == "search_result":
            return [text_part(_search_result(block))]
        if kind == "text":
            return [text_part(block.text or "")]
        if not block.tool_name:
            return []
        self.found_tools.add(block.tool_name)
        return [text_part(f"Tool found: {block.tool_name}")]


_KINDS = ("text", "image", "document", "search_result", "tool_reference")


def _image_url(given: Any, where: str) -> str:
    source = given if isinstance(given, dict) else {}
    kind, data, media = source.get("type"), source.get("data"), source.get("media_type")
    if kind == "url" and isinstance(source.get("url"), str):
        return source["url"]
    if kind == "base64" and isinstance(data, str) and isinstance(media, str):
        return f"data:{media};base64,{data}"
    raise _unsupported(where, "an image that is neither 'base64' nor 'url'")


def _search_result(block: Block) -> str:
    """What was found, and where."""
    found = [block.title or "", block.source if isinstance(block.source, str) else ""]
    for part in block.content if isinstance(block.content, list) else ():
        text = part.get("text") if isinstance(part, dict) else None
        found.append(text if isinstance(text, str) else "")
    return "\n".join(text for text in found if text)


def _document(block: Block, where: str) -> str:
    source = block.source if isinstance(block.source, dict) else {}
    if source.get("type") == "text" and isinstance(source.get("data"), str):
        return f"{block.title}\n\n{source['data']}" if block.title else source["data"]
    raise _unsupported(where, "a document that is not plain text")


class Unshowable(InvalidRequest):
    """Content that no chat request can hold."""

    code = "unsupported_content"


def _unsupported(where: str, what: str) -> Unshowable:
    return Unshowable(f"{where}: {what} is not supported here", param=where)


def _says_nothing(asked: MessagesRequest) -> InvalidRequest:
    first = "messages[0].content"
    return InvalidRequest(
        f"{first}: none of the messages holds content of a kind that is supported here",
        param="messages" if len(asked.messages) > 1 else first,
        code="unsupported_content",
    )


def _format(asked: MessagesRequest, refused: list[InvalidRequest]) -> ResponseFormat | None:
    """The form of the answer. Like a strict tool it is any JSON Schema, not OpenAI's part of it."""
    config, wanted, where = asked.output_config, asked.output_format, "output_format"
    if wanted is None and config is not None:
        wanted, where = config.format, "output_config.format"
    if wanted is None:
        return None
    if wanted.type == "json_schema" and wanted.schema is not None:
        return ResponseFormat("json_schema", JsonSchemaFormat("answer", wanted.schema))
    known = wanted.type == "json_schema"
    name, words = (
        ("schema", "Field required") if known else ("type", "Input should be 'json_schema'")
    )
    param = f"{where}.{name}"
    refused.append(InvalidRequest(f"{param}: {words}", param=param, code="invalid_value"))
    return None
