"""The engine process: OpenAI-compatible HTTP over the service. The only HTTP in this room.

Routes are thin: read, ask ``service.py``, encode. Every error before the first byte leaves through
one handler in OpenAI's shape, whatever the route and whether a stream was asked for.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

import msgspec
import uvicorn
from fastapi import Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from agentspec import __version__, tracing
from agentspec.pauses import ShortPauses
from agentspec.settings import Settings
from agentspec.settings_drafts import DraftSettings
from agentspec.wire.access import Guard, guard_for
from agentspec.wire.chat import encode
from agentspec.wire.errors import (
    AgentspecError,
    BodyTooLarge,
    InternalError,
    InvalidRequest,
    ModelNotFound,
    Overloaded,
    from_validation,
    http_status,
    openai_body,
)
from agentspec.wire.nesting import check_nesting
from agentspec.wire.service import DraftList, TokenizeRequest

from .service import EngineService, Exchange

T = TypeVar("T")
GRACE_S = 5.0
_CLIENT_GONE = 499
# Longer than any client keeps an idle connection, so that it never writes into one just closed.
_KEEP_ALIVE_S = 75
_log = logging.getLogger(__name__)


class ClientGone(Exception):
    """The client closed its connection before its answer was whole."""


def create_engine_app(service: EngineService, guard: Guard | None = None) -> FastAPI:
    """The ASGI application. Its lifespan starts the stepping thread and ends it.

    guard: checks the key on every route but ``/health``; None: everybody passes.
    """

    async def check_key(request: Request) -> None:
        tracing.current.set(tracing.begin(request.headers))
        if guard is not None and request.url.path != "/health":
            guard.check(request.headers)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        await service.stop()

    app = FastAPI(
        lifespan=lifespan,
        dependencies=[Depends(check_key)],
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    for path, methods, endpoint in (
        ("/v1/chat/completions", ["POST"], chat_completions),
        ("/v1/models", ["GET"], models),
        ("/v1/models/{name:path}", ["GET"], model),
        ("/tokenize", ["POST"], tokenize),
        ("/drafts", ["GET"], drafts),
        ("/drafts", ["POST"], load_draft),
        ("/drafts/{name}", ["DELETE"], drop_draft),
        ("/health", ["GET", "HEAD"], health),
        ("/metrics", ["GET"], metrics),
    ):
        app.add_api_route(path, endpoint, methods=methods, response_model=None)
    for kind in (AgentspecError, HTTPException, ClientDisconnect, ClientGone, Exception):
        app.add_exception_handler(kind, render_error)
    return app


def service_of(request: Request) -> EngineService:
    return request.app.state.service


async def chat_completions(request: Request) -> Response:
    service = service_of(request)
    body = await read_body(request, service.max_body_bytes)
    exchange = await unless_gone(request.receive, service.open(body))
    if exchange.turn.stream:
        return EventStream(service, exchange)
    answer = await unless_gone(request.receive, service.whole(exchange))
    return json_response(answer)


async def models(request: Request) -> Response:
    return json_response(service_of(request).models())


async def model(request: Request, name: str) -> Response:
    for card in service_of(request).models().data:
        if card.id == name:
            return json_response(card)
    raise ModelNotFound(f"The model '{name}' does not exist here.", param="model")


async def tokenize(request: Request) -> Response:
    service = service_of(request)
    body = await read_body(request, service.max_body_bytes)
    check_nesting(body)
    try:
        asked = msgspec.json.decode(body, type=TokenizeRequest)
    except msgspec.DecodeError as error:
        raise from_validation(error) from None
    return json_response(await service.tokenize(asked))


async def drafts(request: Request) -> Response:
    return json_response(DraftList(service_of(request).drafts()))


async def load_draft(request: Request) -> Response:
    service = service_of(request)
    # A page of another site can't send this type without asking the server first.
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise InvalidRequest("Expected content-type application/json.", param="content-type")
    body = await read_body(request, service.max_body_bytes)
    try:
        asked = msgspec.json.decode(body, type=DraftSettings)
    except msgspec.DecodeError as error:
        raise from_validation(error) from None
    return json_response(await service.load_draft(asked))


async def drop_draft(request: Request, name: str) -> Response:
    return json_response(await service_of(request).drop_draft(name))


async def health(request: Request) -> Response:
    healthy = service_of(request).healthy
    told = {"status": "ok" if healthy else "failed", "version": __version__}
    return json_response(told, 200 if healthy else 503)


async def metrics(request: Request) -> Response:
    text, content_type = await service_of(request).metrics_page()
    return Response(text, headers={"content-type": content_type})


def json_response(value: Any, status: int = 200) -> Response:
    return Response(encode(value), status, media_type="application/json")


async def read_body(request: Request, limit_bytes: int) -> bytes:
    """The request's body. Raises ``BodyTooLarge`` as soon as it is longer than the limit."""
    pieces, size = [], 0
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > limit_bytes:
            raise BodyTooLarge(f"The request body is larger than {limit_bytes} bytes.")
    return b"".join(pieces)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Await ``work``; when the client goes away first, cancel it and raise ``ClientGone``."""
    working = asyncio.ensure_future(work)
    watching = asyncio.ensure_future(_until_gone(receive))
    try:
        await asyncio.wait((working, watching), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientGone
        return working.result()
    finally:
        for task in (working, watching):
            task.cancel()
        # Their last words (aborting the sequences) are said before anything else happens.
        await asyncio.gather(working, watching, return_exceptions=True)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


class EventStream(Response):
    """A running exchange as server-sent events; the client's going away ends the exchange."""

    media_type = "text/event-stream"

    def __init__(self, service: EngineService, exchange: Exchange):
        super().__init__(headers={"cache-control": "no-cache", "x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._service = service
        self._exchange = exchange

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await unless_gone(receive, self._send_events(send))
        except ClientGone:
            pass
        finally:
            self._service.close(self._exchange)

    async def _send_events(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._service.events(self._exchange)) as events:
            async for data in events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def render_error(request: Request, error: Exception) -> Response:
    """Any error of a route as its HTTP answer: OpenAI's shape, the status from the one table."""
    if isinstance(error, ClientGone | ClientDisconnect):
        return Response(status_code=_CLIENT_GONE)
    if isinstance(error, HTTPException):
        return _unrouted(request, error)
    if not isinstance(error, AgentspecError):
        _log.error("unexpected error in %s", request.url.path, exc_info=error)
        error = InternalError("The engine met an unexpected error.")
    response = json_response(openai_body(error), http_status(error))
    if isinstance(error, Overloaded):
        response.headers["retry-after"] = error.headers.get("retry-after", "1")
    return response


def _unrouted(request: Request, error: HTTPException) -> Response:
    """No such path (404) or no such method on it (405), in the same shape."""
    where = f"{request.method} {request.url.path}"
    if error.status_code == 405:
        refusal = InvalidRequest(f"Method not allowed ({where}).", code="method_not_supported")
    else:
        refusal = InvalidRequest(f"Invalid URL ({where}).")
    response = json_response(openai_body(refusal), error.status_code)
    response.headers.update(error.headers or {})
    return response


class EngineServer(uvicorn.Server):
    """uvicorn that lets running answers end within ``GRACE_S`` and then breaks them off."""

    def __init__(self, config: uvicorn.Config, service: EngineService):
        super().__init__(config)
        self._service = service
        service.loop.on_death = self._engine_died

    def _engine_died(self, _: BaseException) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        draining = asyncio.create_task(self._service.drain(GRACE_S))
        await super().shutdown(sockets)
        await draining


def run(settings: Settings, fd: int | None = None) -> None:
    """Serve until SIGTERM or SIGINT, on the listening socket ``fd`` or the settings' address.

    Raises ``SettingsError`` or ``ModelError`` before anything is served. Leaves the process
    (``SystemExit``, with a message) when the engine died, so that its supervisor starts a new one.
    """
    from .build import build_service

    guard = guard_for(settings.engine)
    service = build_service(settings)
    config = uvicorn.Config(
        create_engine_app(service, guard),
        host=settings.engine.host,
        port=settings.engine.port,
        log_config=None,
        access_log=False,
        ws="none",
        timeout_keep_alive=_KEEP_ALIVE_S,
        timeout_graceful_shutdown=int(2 * GRACE_S),
    )
    server = EngineServer(config, service)
    config.load()
    with ShortPauses():
        server.run([socket.socket(fileno=fd)] if fd is not None else None)
    if service.loop.failure is not None:
        raise SystemExit(f"agentspec: the engine died: {service.loop.failure!r}")
