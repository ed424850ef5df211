"""Errors as Anthropic spells them: its own types, its own status for an overload, its own words.

Claude Code starts its compaction on the words "prompt is too long"; the SDK resends a threaded
request without its thread where ``details.error_code`` says so (both recorded from the clients).
"""

from __future__ import annotations

from typing import Any

from .context import overflow
from .errors import CALL_CODES, AgentspecError, InvalidRequest, UpstreamFailed, http_status

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
_OVERLOADED = 529


class ThreadUnsupported(InvalidRequest):
    """``thread`` asks the server to remember the conversation. The client has it: it resends."""

    code = "thread_unsupported_request"


def anthropic_status(error: AgentspecError) -> int:
    """The HTTP status. Anthropic's own errors keep theirs."""
    if isinstance(error, UpstreamFailed) and error.own is not None and error.status is not None:
        return error.status
    status = http_status(error)
    return _OVERLOADED if status == 503 else status


def anthropic_body(error: AgentspecError, request_id: str = "") -> dict[str, Any]:
    """``{"type": "error", "error": {...}}``; the same object is an error event in a stream.

    An error that is Anthropic's own already keeps its words, and gets our id: it is the one in the
    header, by which the request is found here.
    """
    if isinstance(error, UpstreamFailed) and error.own is not None:
        return error.own | ({"request_id": request_id} if request_id else {})
    status = http_status(error)
    kind = _TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
    told: dict[str, Any] = {"type": kind, "message": _words(error)}
    if isinstance(error, ThreadUnsupported):
        told["details"] = {"error_code": error.code, "unsupported": ["thread"]}
    elif error.code in CALL_CODES:
        told["details"] = {"error_code": error.code}
    return {"type": "error", "error": told, "request_id": request_id or None}


def _words(error: AgentspecError) -> str:
    if error.code != "context_length_exceeded":
        return error.message
    found = overflow(error.message)
    if found is None or not found.prompt or not found.context:
        return f"prompt is too long: {error.message}"
    return f"prompt is too long: {found.prompt} tokens > {found.context} maximum"
