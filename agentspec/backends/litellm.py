"""A commercial API through the litellm SDK (never its proxy).

litellm is imported with the first request, in a thread: it takes seconds and 200 MB. It retries
nothing and waits for nothing of its own accord: both are the gateway's business. Of the client's
fields only OpenAI's own are passed on, so that no request can name another URL or key.
"""

from __future__ import annotations

import asyncio
import importlib
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from agentspec.settings import BackendSettings, export, secret
from agentspec.wire.chat import ChatChunk, ChatResponse
from agentspec.wire.errors import (
    AgentspecError,
    InvalidRequest,
    UpstreamDisconnected,
    UpstreamFailed,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from agentspec.wire.service import ModelCard

from .base import Turn
from .foreign import decode, to_chunk, to_response
from .litellm_reasoning import Trimmed
from .litellm_refusals import tapped
from .verdict import (
    anthropic_error,
    code_from_words,
    credential_refused,
    passed_headers,
    status_of_type,
    words_of,
)

_PASSED_FIELDS = frozenset(
    (
        *("messages", "temperature", "top_p", "n", "stop", "max_tokens", "max_completion_tokens"),
        *("presence_penalty", "frequency_penalty", "logit_bias", "user", "response_format"),
        *("seed", "tools", "tool_choice", "parallel_tool_calls", "logprobs", "top_logprobs"),
        *("reasoning_effort", "verbosity", "prediction", "service_tier"),
        *("prompt_cache_key", "safety_identifier"),
    )
)
_PREFIX = re.compile(r"^(?:litellm\.\w+: )+")
# Classes of httpx and openai.
_NO_CONNECTION = frozenset(("ConnectError", "ConnectTimeout"))
_BROKEN_CONNECTION = frozenset(
    ("ReadError", "WriteError", "CloseError", "RemoteProtocolError", "APIConnectionError")
)


def _load() -> Any:
    """Import litellm, quietly: no price map from the network, no telemetry, no .env file."""
    export("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    export("LITELLM_MODE", "PRODUCTION")
    module: Any = importlib.import_module("litellm")
    module.telemetry = False
    module.suppress_debug_info = True
    return module


class LiteLLMBackend:
    """One provider account. ``Turn.upstream_model`` is litellm's name, e.g. "anthropic/NAME";
    where ``provider`` is given, the name behind it.

    Raises ``SettingsError`` when ``api_key_env`` names a variable that is not set.
    """

    kind = "litellm"
    native_paths: frozenset[str] = frozenset()

    def __init__(self, name: str, settings: BackendSettings, *, provider: str = ""):
        self.name = name
        self.call_retries = settings.retries_of_calls
        self._prefix = f"{provider}/" if provider else ""
        self._settings = settings
        self._key = secret(settings.api_key_env)
        self._litellm: Any = None

    async def chat(self, turn: Turn) -> AsyncGenerator[ChatChunk]:
        stream = await self._call(turn, stream=True, stream_options={"include_usage": True})
        refusals, trimmed = tapped(stream), Trimmed()
        finished = False
        patience_s = self._settings.first_byte_timeout_s
        try:
            while True:
                try:
                    async with asyncio.timeout(patience_s):
                        chunk = await anext(stream)
                except StopAsyncIteration:
                    break
                except Exception as error:
                    raise self._translate(error) from None
                patience_s = self._settings.idle_timeout_s
                answer = decode(chunk.model_dump_json().encode())
                if refusals is not None:
                    refusals.put_into(answer)
                if any(choice.finish_reason for choice in answer.choices or ()):
                    finished = True
                    self._check_end(stream)
                yield to_chunk(trimmed.read(answer), turn)
            if not finished:
                raise self._unfinished()
        finally:
            # Dropping the stream would leave the provider generating (and billing).
            await stream.aclose()

    def _check_end(self, stream: Any) -> None:
        """litellm ends a stream that stopped short with a "stop" of its own."""
        told = (stream.received_finish_reason, stream.intermittent_finish_reason)
        if not any(told) and not stream.received_any_finish_reason:
            raise self._unfinished()

    def _unfinished(self) -> UpstreamFailed:
        return UpstreamFailed(f"Backend '{self.name}' ended its answer before it was finished.")

    async def complete(self, turn: Turn) -> ChatResponse:
        answer = await self._call(turn, stream=False)
        return to_response(Trimmed().read(decode(answer.model_dump_json().encode())), turn)

    async def _call(self, turn: Turn, **more: Any) -> Any:
        patience_s = self._settings.first_byte_timeout_s
        if turn.extension.suffix is not None:
            raise InvalidRequest(
                f"Backend '{self.name}' cannot fill in the middle ('suffix').",
                param="suffix",
                code="unsupported_parameter",
            )
        try:
            if self._litellm is None:
                self._litellm = await asyncio.to_thread(_load)
            async with asyncio.timeout(patience_s):
                return await self._litellm.acompletion(
                    model=self._prefix + turn.upstream_model,
                    **_passed(turn),
                    **more,
                    api_key=self._key,
                    base_url=self._settings.url,
                    timeout=patience_s,
                    max_retries=0,
                    num_retries=0,
                    drop_params=True,
                )
        except Exception as error:
            raise self._translate(error) from None

    def _translate(self, error: Exception) -> AgentspecError:
        """litellm's exception as ours. They derive from openai's and carry ``status_code``."""
        if isinstance(error, AgentspecError):
            return error
        kind = type(error).__name__
        if isinstance(error, TimeoutError) or kind == "Timeout":
            return UpstreamTimeout(f"Backend '{self.name}' did not answer in time.")
        causes = _causes(error)
        if causes & _NO_CONNECTION:
            return UpstreamUnreachable(f"Backend '{self.name}' cannot be reached.")
        if causes & _BROKEN_CONNECTION:
            return UpstreamDisconnected.of(self.name)
        status = getattr(error, "status_code", None)
        if status in (401, 403):
            return credential_refused(self.name, status)
        message = getattr(error, "message", "") or str(error)
        own = anthropic_error(message)
        told = own["error"].get("type") if own is not None else getattr(error, "type", None)
        if own is not None:
            # litellm maps Anthropic's statuses to its own classes; the body tells what they were.
            status = status_of_type(told) or status
        too_long = kind == "ContextWindowExceededError"
        failed = UpstreamFailed(
            words_of(message) or _PREFIX.sub("", message),
            param=_word(getattr(error, "param", None)),
            code="context_length_exceeded"
            if too_long
            else code_from_words(message) or _word(getattr(error, "code", None)),
            type=_word(told),
            status=status if isinstance(status, int) else None,
            headers=passed_headers(_headers(error)),
        )
        failed.own = own
        return failed

    async def models(self) -> list[ModelCard]:
        return []

    async def health(self) -> bool:
        """A commercial API counts as healthy: asking it costs money."""
        return True

    async def aclose(self) -> None:
        if self._litellm is not None:
            await self._litellm.close_litellm_async_clients()


def _headers(error: Exception) -> Mapping[str, str]:
    """The headers of the provider's error answer, wherever litellm kept them."""
    response = getattr(error, "response", None)
    found = getattr(error, "litellm_response_headers", None) or getattr(response, "headers", None)
    return found or {}


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _causes(error: BaseException | None) -> set[str]:
    """The names of the error's class and of those it came from: litellm calls a refused connection
    an internal server error."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        seen.append(error)
        error = error.__cause__ or error.__context__
    return {type(cause).__name__ for cause in seen}


def _passed(turn: Turn) -> dict[str, Any]:
    fields = {name: raw for name, raw in turn.body.items() if name in _PASSED_FIELDS}
    if fields.get("tools") is not None and bytes(fields["tools"]).strip() == b"[]":
        del fields["tools"]
    return {name: msgspec.json.decode(raw) for name, raw in fields.items()}
