"""Every error a caller can cause or meet, and the one table from class to HTTP status.

    AgentspecError
    |- InvalidRequest                 400  a field is missing, of the wrong type or out of range
    |  |- ContextLengthExceeded       400  prompt longer than the model's context
    |  |- NotFound                    404  something asked for by its id is not there
    |  |- InvalidSchema               400  a JSON schema that cannot be understood or enforced
    |  `- ModelNotFound               404  no such model on this endpoint
    |- AuthenticationFailed           401
    |- PermissionDenied               403
    |- BodyTooLarge                   413
    |- RateLimited                    429
    |- BudgetExhausted                402  the key's or project's money is used up
    |- Overloaded                     503  this server has no room now
    |- UpstreamFailed                 502  a backend answered with an error of its own or broke off
    |  |- UpstreamUnreachable         502  no connection; nothing was sent to the client yet
    |  |- UpstreamDisconnected        502  the connection broke before the answer was whole
    |  `- UpstreamTimeout             504
    |- GenerationFailed               500  the model's finished output does not meet its constraint
    `- InternalError                  500

Bodies follow OpenAI's shape: ``{"error": {"message", "type", "param", "code"}}``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from .chat import Usage


class AgentspecError(Exception):
    """Root of the tree. ``param`` names the offending field, ``code`` is machine-readable.

    headers: of the answer that tells it, beside the usual ones. spelled: ``param`` is in the words
    of the client's own protocol already. usage: what a backend told of the tokens of a call that
    failed; None where it told nothing.
    """

    type = "api_error"
    code: str | None = None

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None):
        super().__init__(message)
        self.message = message
        self.param = param
        self.code = code if code is not None else type(self).code
        self.headers: dict[str, str] = {}
        self.spelled = False
        self.usage: Usage | None = None


class InvalidRequest(AgentspecError):
    type = "invalid_request_error"


class ContextLengthExceeded(InvalidRequest):
    code = "context_length_exceeded"

    @classmethod
    def of(
        cls, prompt_tokens: int, context_tokens: int, *, at_least: bool = False
    ) -> ContextLengthExceeded:
        """The wording that coding agents recognise (and start their compaction on).

        at_least: the count is a lower bound (a prompt far too long is not tokenized).
        """
        count = f"at least {prompt_tokens}" if at_least else str(prompt_tokens)
        room = ", which leaves no room for an answer" if prompt_tokens == context_tokens else ""
        return cls(
            f"This model's maximum context length is {context_tokens} tokens. However, your "
            f"messages resulted in {count} tokens{room}. Please reduce the length of the "
            "messages.",
            param="messages",
        )


class InvalidSchema(InvalidRequest):
    code = "invalid_json_schema"


class ModelNotFound(InvalidRequest):
    code = "model_not_found"


class AuthenticationFailed(AgentspecError):
    type = "authentication_error"
    code = "invalid_api_key"


class PermissionDenied(AgentspecError):
    type = "permission_error"


class NotFound(InvalidRequest):
    code = "not_found"


class BodyTooLarge(InvalidRequest):
    code = "request_too_large"


class RateLimited(AgentspecError):
    type = "rate_limit_error"
    code = "rate_limit_exceeded"


class BudgetExhausted(AgentspecError):
    type = "insufficient_quota"
    code = "insufficient_quota"


class Overloaded(AgentspecError):
    type = "overloaded_error"
    code = "overloaded"


class UpstreamFailed(AgentspecError):
    """A backend's error. ``status`` and ``headers`` keep what it said, so that it can be passed on.

    own: the whole error body, where it is in Anthropic's shape (clients match its wording).
    """

    type = "server_error"  # opencode retries what holds these words (its list, 1.18.33)
    code = "upstream_error"

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        status: int | None = None,
        type: str | None = None,
        headers: dict[str, str] | None = None,
    ):
        super().__init__(message, param=param, code=code)
        self.status = status
        self.headers = headers or {}
        self.own: dict[str, Any] | None = None
        if type:
            self.type = type


class UpstreamUnreachable(UpstreamFailed):
    code = "upstream_unreachable"


class UpstreamDisconnected(UpstreamFailed):
    """Worded the same whether or not the answer had begun and a stream was asked for, since a
    stream's headers may come long before its first word."""

    code = "upstream_disconnected"

    @classmethod
    def of(cls, backend: str) -> UpstreamDisconnected:
        return cls(f"Backend '{backend}' broke off the connection before its answer was whole.")


class UpstreamTimeout(UpstreamFailed):
    code = "upstream_timeout"


class GenerationFailed(AgentspecError):
    type = "server_error"
    code = "constraint_not_met"


class InternalError(AgentspecError):
    type = "server_error"
    code = "internal_error"


CALL_CODES = ("invalid_tool_call", "malformed_tool_call", "invalid_answer")
"""The codes of answers that don't keep to what was asked, which every protocol tells: an agent may
go on from them."""

_STATUS: dict[type[AgentspecError], int] = {
    AgentspecError: 500,
    InvalidRequest: 400,
    ModelNotFound: 404,
    NotFound: 404,
    BodyTooLarge: 413,
    AuthenticationFailed: 401,
    PermissionDenied: 403,
    RateLimited: 429,
    BudgetExhausted: 402,
    Overloaded: 503,
    UpstreamFailed: 502,
    UpstreamTimeout: 504,
}


def http_status(error: AgentspecError) -> int:
    """The HTTP status of an error: its class's entry, found along the class's ancestors.

    A backend's own 4xx verdict on the request (``UpstreamFailed.status``) is kept, and so is its
    503, which agents retry.
    """
    upstream = getattr(error, "status", None)
    if upstream == 529:  # Anthropic's word for an overload
        return 503
    if upstream is not None and (400 <= upstream < 500 or upstream == 503):
        return upstream
    return next(_STATUS[cls] for cls in type(error).__mro__ if cls in _STATUS)


def openai_body(error: AgentspecError) -> dict[str, Any]:
    """``{"error": {...}}`` as OpenAI spells it; the same object is an error chunk in a stream."""
    return {
        "error": {
            "message": error.message,
            "type": error.type,
            "param": error.param,
            "code": error.code,
        }
    }


_PATH = re.compile(r" - at `\$?\.?(?P<path>[^`]*)`$")


def from_validation(error: msgspec.ValidationError | msgspec.DecodeError) -> InvalidRequest:
    """A msgspec decoding error as ``InvalidRequest`` whose ``param`` is the field's path."""
    text = str(error)
    found = _PATH.search(text)
    if not found:
        missing = re.search(r"missing required field `([^`]+)`", text)
        if missing:
            return _missing(missing.group(1))
        return InvalidRequest(f"The request body could not be read: {text}")
    path, text = found.group("path"), text[: found.start()]
    missing = re.search(r"missing required field `([^`]+)`", text)
    if missing:
        return _missing(f"{path}.{missing.group(1)}" if path else missing.group(1))
    return InvalidRequest(f"Invalid value for '{path}': {text}.", param=path, code="invalid_value")


def _missing(path: str) -> InvalidRequest:
    return InvalidRequest(
        f"Missing required parameter: '{path}'.", param=path, code="missing_required_parameter"
    )
