"""The endpoint as a client would see it: its models, and one real call on the client's surface.

Plain HTTP from the standard library: this must work where no SDK is installed.
"""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

import msgspec

from . import calls
from .base import Client, ConnectError

LIST_S, ANSWER_S = 30.0, 300.0
_TINY_PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGA"
    "WjR9awAAAABJRU5ErkJggg=="
)


@dataclass(frozen=True, slots=True)
class Offered:
    """A model of the endpoint. backend: where it runs, as the endpoint names it."""

    name: str
    context_tokens: int | None
    backend: str | None


class _Card(msgspec.Struct):
    id: str
    context_length: int | None = None
    max_model_len: int | None = None
    backend: str | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


@dataclass(frozen=True, slots=True)
class Checked:
    """What one real call showed. called: a tool was called, with arguments that are an object."""

    seconds: float
    called: bool
    events: int


class Endpoint:
    """url: without ``/v1``. key: sent as a bearer token where there is one."""

    def __init__(self, url: str, key: str | None = None):
        self.url = url
        self._headers = {"Content-Type": "application/json", "User-Agent": "agentspec-connect/1"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"

    def models(self) -> list[Offered]:
        """What is offered, in the endpoint's order. Raises ``ConnectError``."""
        try:
            with self._open("/v1/models", limit_s=LIST_S) as answer:
                cards = msgspec.json.decode(answer.read(), type=_Cards).data
        except (msgspec.MsgspecError, UnicodeDecodeError, HTTPException, OSError) as error:
            raise ConnectError(
                f"{self.url}/v1/models is no list of models ({error}): is it an OpenAI-compatible "
                "endpoint?"
            ) from None
        return [Offered(c.id, c.context_length or c.max_model_len, c.backend) for c in cards]

    def check(self, client: Client, model: str) -> Checked:
        """One streamed call on the client's surface, with a tool where it always sends tools.

        Raises ``ConnectError`` when it is refused, breaks off, or calls no tool where it must.
        """
        protocol = calls.PROTOCOLS[client.surface]
        body = protocol.body(model, client.tools)
        started = time.monotonic()
        with self._open(protocol.path, body) as answer:
            events = list(_events(answer))
        seen = _read(protocol, events)
        if not seen.ended:
            raise ConnectError(
                f"{self.url}{protocol.path}: the stream ended without its last event"
            )
        if client.tools and not seen.called:
            raise ConnectError(
                f"{self.url}{protocol.path}: '{model}' did not call the tool it had to"
            )
        return Checked(time.monotonic() - started, seen.called, len(events))

    def sees_images(self, model: str) -> bool:
        """Whether a tiny image is taken (one token of an answer is asked for)."""
        image = {"url": f"data:image/png;base64,{_TINY_PNG}"}
        content = [
            {"type": "text", "text": "What is it?"},
            {"type": "image_url", "image_url": image},
        ]
        body = {
            "model": model,
            "messages": [{"role": "user", "content": content}],
            "max_tokens": 1,
        }
        try:
            with self._open("/v1/chat/completions", body):
                return True
        except ConnectError:
            return False

    def _open(self, path: str, body: Any = None, limit_s: float = ANSWER_S) -> Any:
        data = None if body is None else json.dumps(body).encode()
        try:
            request = urllib.request.Request(self.url + path, data, self._headers)
            return urllib.request.urlopen(request, timeout=limit_s)
        except urllib.error.HTTPError as error:
            with error:
                told = f"{self.url}{path}: {error.code} {_message(error)}"
            raise ConnectError(f"{told}{self._about_keys(error.code)}") from None
        except (OSError, ValueError, HTTPException) as error:
            reason = getattr(error, "reason", error)
            raise ConnectError(
                f"{self.url} does not answer ({reason}): start it with 'agentspec serve', "
                "or name another with --url"
            ) from None

    def _about_keys(self, status: int) -> str:
        if status not in (401, 403) or "Authorization" in self._headers:
            return ""
        return " (name the variable that holds the endpoint's key with --key-env)"


def _read(protocol: calls.Protocol, events: list[dict[str, Any]]) -> calls.Seen:
    try:
        return protocol.read(events)
    except (KeyError, TypeError, AttributeError) as error:
        raise ConnectError(f"{protocol.path}: an event is not as it should be: {error!r}") from None


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read(10_000).decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return text[:200] or error.reason


def _events(answer: Any) -> Iterator[dict[str, Any]]:
    """The JSON of each event. Raises ``ConnectError`` for an error event or a broken stream."""
    try:
        for line in answer:
            data = line.decode().strip().removeprefix("data:").strip()
            if not line.startswith(b"data:") or not data:
                continue
            event: Any = {"type": "[DONE]"} if data == "[DONE]" else json.loads(data)
            if not isinstance(event, dict):
                raise ConnectError(f"an event of the stream is no object: {data[:80]}")
            if error := event.get("error"):
                why = error.get("message", "") if isinstance(error, dict) else error
                raise ConnectError(f"the endpoint broke off: {why}")
            yield event
    except (OSError, ValueError, HTTPException) as error:
        if isinstance(error, ConnectError):
            raise
        raise ConnectError(f"the stream broke: {error}") from None
