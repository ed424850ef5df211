"""How many tokens a prompt has, about, where nobody who has its tokenizer tells."""

from __future__ import annotations

import msgspec

from agentspec.wire.chat import ChatRequest, encode

_BYTES_PER_TOKEN = 4  # the usual rule of thumb
_IMAGE_TOKENS = 1000  # of a picture of usual size; its base64 text says nothing of it


def prompt_tokens(request: ChatRequest) -> int:
    """An estimate of messages, their calls and pictures, and the tools that may be called."""
    pictures = 0
    size = len(encode(request.tools or [])) if request.tool_choice != "none" else 0
    for message in request.messages:
        if isinstance(message.content, list):
            pictures += sum(part.type == "image_url" for part in message.content)
            message = msgspec.structs.replace(message, content=message.text())
        size += len(encode(message))
    return size // _BYTES_PER_TOKEN + pictures * _IMAGE_TOKENS
