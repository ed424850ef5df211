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
_IDS = ("request-id", "x-request-id")
_RATE_LIMITS = "anthropic-ratelimit-"
_QUOTED = re.compile(r"""b'\{.*\}\s*'|b"\{.*\}\s*\"""", re.DOTALL)
_JSON = json.JSONDecoder()
_PRINTABLE = re.compile(r"[\x20-\x7e]*")
_STATUS_OF = {
    **dict.fromkeys(("context_length_exceeded", "invalid_request_error", "invalid_prompt"), 400),
    **dict.fromkeys(("BadRequestError", "string_above_max_length", "invalid_value"), 400),
    **dict.fromkeys(("authentication_error", "invalid_api_key"), 401),
    "permission_error": 403,
    **dict.fromkeys(("not_found_error", "model_not_found", "NotFoundError"), 404),
    "request_too_large": 413,
    **dict.fromkeys(("rate_limit_error", "rate_limit_exceeded", "insufficient_quota"), 429),
    **dict.fromkeys(("RateLimitError", "rate_limit"), 429),
    "billing_error": 402,
    "api_error": 500,
    "overloaded_error": 529,
}
"""By the codes and types of OpenAI, Anthropic and vLLM: the status that they come with, for errors
that come without one."""
_SHOWN_CHARS = 500
_TYPES = {429: "rate_limit_error"}


def error_from_answer(
    name: str, status: int, headers: Mapping[str, str], body: bytes
) -> UpstreamFailed:
    """The error of a non-200 answer, in its own words; a 4xx verdict keeps its status."""
    found = _find_error(body)
    if status in (401, 403):
        return credential_refused(name, status)
    error = _failed(found, f"Backend '{name}' answered {status}.", status)
    error.headers = passed_headers(headers)
    error.own = anthropic_error(body.decode("utf-8", "replace"))
    return error


def _failed(found: dict[str, Any], otherwise: str, status: int | None) -> UpstreamFailed:
    """The error that an object describes. otherwise: its message, where it has none."""
    message = _text(found.get("message")) or otherwise
    told = _text(found.get("type"))
    verdict = status is not None and 400 <= status < 500
    return UpstreamFailed(
        message,
        param=_text(found.get("param")),
        code=_code(found, message),
        status=status,
        type=told or (_TYPES.get(status or 0, "invalid_request_error") if verdict else None),
    )


def passed_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of an error answer that its client is to see; the server's own id of the request
    under another name, since ours stands in its place."""
    passed = {
        key: value
        for key, value in headers.items()
        if (key.lower() in _PASSED_HEADERS or key.lower().startswith(_RATE_LIMITS))
        and _PRINTABLE.fullmatch(value)
    }
    for key, value in headers.items():
        if key.lower() in _IDS and _PRINTABLE.fullmatch(value):
            passed["x-upstream-request-id"] = value
    return passed


def anthropic_error(text: str) -> dict[str, Any] | None:
    """An error body in Anthropic's shape that stands in ``text``, maybe among other words."""
    found = quoted_body(text)
    if found is None or found.get("type") != "error":
        return None
    return found if isinstance(found.get("error"), dict) else None


def quoted_body(text: str) -> dict[str, Any] | None:
    """The JSON object that stands in ``text``, maybe among other words.

    litellm quotes the body as Python writes bytes, ``b'{...}'``.
    """
    start = text.find("{")
    if start < 0:
        return None
    quoted = _QUOTED.search(text)
    try:
        body = ast.literal_eval(quoted.group()) if quoted else text[start:].encode()
        found, _ = _JSON.raw_decode(body.decode("utf-8", "replace"))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return found if isinstance(found, dict) else None


def words_of(text: str) -> str | None:
    """What the error body says that a text quotes; None where it quotes none."""
    found = quoted_body(text)
    return None if found is None else _text(_described(found).get("message"))


def credential_refused(name: str, status: int) -> UpstreamFailed:
    """401 and 403 judge the gateway's own credential, not the client's: they lose their status, so
    that a client doesn't take them for a refusal of its key, and their words, which quote it."""
    return UpstreamFailed(
        f"Backend '{name}' refused the gateway's credential ({status}).",
        code="upstream_credential_refused",
    )


def error_from_event(name: str, error: Any) -> UpstreamFailed:
    """The error of a ``data: {"error": ...}`` event in a stream, or of an answer that came as if
    all were well. Its status is what it says, or what a known code or type comes with."""
    found = error if isinstance(error, dict) else {"message": error}
    otherwise = f"Backend '{name}' broke off its answer."
    message = _text(found.get("message")) or otherwise
    told = (found.get("status"), found.get("code"))
    status = next((n for n in told if isinstance(n, int) and 400 <= n < 600), None)
    for word in (_code(found, message), found.get("type")):
        if status is None and isinstance(word, str):
            status = _STATUS_OF.get(word)
    if status in (401, 403):
        return credential_refused(name, status)
    return _failed(found, otherwise, status)


def status_of_type(kind: Any) -> int | None:
    """The status that an error's type comes with, where it is known."""
    return _STATUS_OF.get(kind) if isinstance(kind, str) else None


def _find_error(body: bytes) -> dict[str, Any]:
    """The object that describes the error, wherever this server puts it."""
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {"message": body.decode("utf-8", "replace").strip()[:_SHOWN_CHARS]}
    return _described(decoded) if isinstance(decoded, dict) else {}


def _described(decoded: dict[str, Any]) -> dict[str, Any]:
    for key in ("error", "detail"):
        inner = decoded.get(key)
        if isinstance(inner, dict):
            return inner
        if isinstance(inner, str | list):
            return {"message": told_in(inner)}
    return decoded


def told_in(detail: Any) -> str | None:
    """FastAPI's ``detail`` as text: a text, or a list of what is wrong where."""
    if isinstance(detail, dict):
        return _text(detail.get("message"))
    if not isinstance(detail, list):
        return _text(detail)
    told = []
    for one in detail:
        if isinstance(one, dict):
            loc = one.get("loc")
            place = ".".join(map(str, loc)) if isinstance(loc, list) else ""
            told.append(f"{place}: {one.get('msg')}" if place else str(one.get("msg")))
        else:
            told.append(str(one))
    return "; ".join(told)[:_SHOWN_CHARS] or None


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
