"""What a vendor's servers ran within an assistant's message, as text for models elsewhere."""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import encode

# Of use to the vendor's own servers only.
_SEALED = ("encrypted_content", "encrypted_index", "encrypted_stdout")


class ServedResult(msgspec.Struct):
    """A ``web_search_tool_result``, ``mcp_tool_result``, ``code_execution_tool_result``, ..."""

    tool_use_id: str
    content: Any = None
    is_error: bool | None = None


def told_by(result: ServedResult) -> str:
    """The result's text: what was found and where; what has no text is told as JSON."""
    content = result.content
    parts = content if isinstance(content, list) else [content]
    text = "\n".join(filter(None, map(_told, parts)))
    if result.is_error:
        return f"Error: {text}" if text else "Error"
    return text


def _told(part: Any) -> str:
    if part is None or isinstance(part, str):
        return part or ""
    if not isinstance(part, dict):
        return encode(part).decode()
    if part.get("type") == "text" and isinstance(part.get("text"), str):
        return part["text"]
    kept = {name: value for name, value in part.items() if name not in (*_SEALED, "type")}
    return encode(kept).decode()


def found_in(content: Any) -> set[str]:
    """The names of the tools that a tool search found."""
    listed = content.get("tool_references") if isinstance(content, dict) else None
    names = [one.get("tool_name") for one in listed or () if isinstance(one, dict)]
    return {name for name in names if isinstance(name, str)}
