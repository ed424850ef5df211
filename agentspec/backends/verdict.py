"""A backend's error answer as one of our errors, in its own words."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from agentspec.wire.context import overflow
from agentspec.wire.errors import UpstreamFailed

_PASSED_HEADERS = ("retry-after", "x-should-retry")
_RATE_LIMITS = "anthropic-ratelimit-"
_QUOTED = re.compile(r"""b'\{.*\}\s*'|b"\{.*\}\s*\"""", re.DOTALL)
_JSON = json.JSONDecoder()
_PRINTABLE = re.compile(r"[\x20-\x7e]*")


def error_from_answer(
    name: str, status: int, headers: Mapping[str, str], body: bytes
) -> UpstreamFailed:
    """The error of a non-200 answer, in its own words; a 4xx verdict keeps its status."""
    found = _find_error(body)
    message = _text(found.get("message")) or f"Backend '{name}' answered {status}."
    if status in (401, 403):
        return credential_refused(name, status)
    error = UpstreamFailed(
        message,
        param=_text(found.get("param")),
        code=_code(found, message),
        status=status,
        type=_text(found.get("type")),
        headers=passed_headers(headers),
    )
    error.own = anthropic_error(body.decode("utf-8", "replace"))
    return error


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an error answer that its client is to see."""
    return {
        key: value
        for key, value in headers.items()
        if (key.lower() in _PASSED_HEADERS or key.lower().startswith(_RATE_LIMITS))
        and _PRINTABLE.fullmatch(value)
    }


def anthropic_error(text: str) -> dict[str, Any] | None:
    """An error body in Anthropic's shape that stands in ``text``, maybe among other words.

    litellm quotes the body as Python writes bytes, ``b'{...}'``.
    """
    start = text.find("{")
    if start < 0:
        return None
    quoted = _QUOTED.search(text)
    try:
        body = ast.literal_eval(quoted.group()) if quoted else text[start:].encode()
        found, _ = _JSON.raw_decode(body.decode("utf-8", "replace"))
    except (ValueError, SyntaxError, RecursionError):
        return None
    if not isinstance(found, dict) or found.get("type") != "error":
        return None
    return found if isinstance(found.get("error"), dict) else None


def credential_refused(name: str, status: int) -> UpstreamFailed:
    """401 and 403 judge the gateway's own credential, not the client's: they lose their status, so
    that a client doesn't take them for a refusal of its key, and their words, which quote it."""
    return UpstreamFailed(
        f"Backend '{name}' refused the gateway's credential ({status}).",
        code="upstream_credential_refused",
    )


def error_from_event(name: str, error: Any) -> UpstreamFailed:
    """The error of a ``data: {"error": ...}`` event in a stream."""
    found = error if isinstance(error, dict) else {"message": error}
    message = _text(found.get("message")) or f"Backend '{name}' broke off its answer."
    status = found.get("status", found.get("code"))
    return UpstreamFailed(
        message,
        param=_text(found.get("param")),
        code=_code(found, message),
        status=status if isinstance(status, int) and 400 <= status < 600 else None,
        type=_text(found.get("type")),
    )


def _find_error(body: bytes) -> dict[str, Any]:
    """The object that describes the error, wherever this server puts it."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {"message": body.decode("utf-8", "replace").strip()[:500]}
    if not isinstance(decoded, dict):
        return {}
    for key in ("error", "detail"):
        inner = decoded.get(key)
        if isinstance(inner, dict):
            return inner
        if isinstance(inner, str):
            return {"message": inner}
    return decoded


def _code(found: dict[str, Any], message: str) -> str | None:
    code = found.get("code")
    if isinstance(code, str) and code:
        return code
    return code_from_words(message)


def code_from_words(message: str) -> str | None:
    """The code that a message alone implies, if any. Agents start their compaction on the one for
    prompts that are too long, which few servers send; it isn't told of an output limit that is."""
    found = overflow(message)
    return "context_length_exceeded" if found is not None and not found.room else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
