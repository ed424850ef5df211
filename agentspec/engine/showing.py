"""A request's messages and tools as the tokens of a prompt: what the model is shown of them.

Read next: ``toolcall/native.py`` (the template's own way), ``toolcall/prompt.py`` (ours).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from agentspec.toolcall.native import native_tools, native_turns
from agentspec.toolcall.prompt import build_turns
from agentspec.wire.chat import ChatRequest
from agentspec.wire.errors import InvalidRequest

from .model.errors import TokenizerError

if TYPE_CHECKING:
    from agentspec.toolcall.format import ToolFormat

    from .turn import TextTokenizer


class Showing:
    """For one model. tool_format: with the room that tools have in its prompts."""

    def __init__(self, tokenizer: TextTokenizer, tool_format: ToolFormat):
        self._tokenizer, self._format = tokenizer, tool_format
        self._native = tokenizer.native(tool_format)

    def turns(self, request: ChatRequest) -> list[dict[str, str]]:
        """Our way, tools included: role and content."""
        return build_turns(request, self._format)

    def tokens(self, request: ChatRequest) -> list[int]:
        """The template's own way with tools, where it has one and they fit into it; else ours.

        Raises ``InvalidRequest`` naming the message that can't be shown.
        """
        if self._native is not None and _has_tools(request):
            tools = native_tools(request, self._format.tools_budget_chars)
            if tools is not None:
                with suppress(TokenizerError):  # what the template refuses is shown in our way
                    turns = native_turns(request, self._native)
                    return self._tokenizer.render(turns, tools=tools)
        try:
            return self._tokenizer.render(self.turns(request))
        except TokenizerError as error:
            raise InvalidRequest(
                f"Invalid value for 'messages': {error}.", param="messages"
            ) from None


def _has_tools(request: ChatRequest) -> bool:
    """Whether tools are shown, or were called before."""
    return bool(request.tools) or any(m.tool_calls or m.tool_call_id for m in request.messages)
