"""The application: every part is made here and passed on; nothing is global."""

from __future__ import annotations

import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from functools import partial
from pathlib import Path

from fastapi import APIRouter, Depends, FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route

from agentspec import __version__
from agentspec.backends.base import Backend
from agentspec.backends.registry import build
from agentspec.settings import VENDOR_KINDS, Settings, with_defaults
from agentspec.store.journal import Journal
from agentspec.store.pricer import Pricer
from agentspec.tracing import begin
from agentspec.wire.chat import encode
from agentspec.wire.errors import (
    AgentspecError,
    InternalError,
    InvalidRequest,
    NotFound,
    http_status,
    openai_body,
)
from agentspec.wire.messages_errors import anthropic_body, anthropic_status
from agentspec.wire.service import anthropic_card, anthropic_list

from .access import Access, access_for
from .catalogue import Catalogue
from .choosing import Choosing
from .clock import Clock
from .crossing import check_name
from .embeddings import EmbeddingService
from .endpoint import Endpoint
from .kept import Kept, kept_for
from .ledger import JournalLike, Ledger
from .limits import Limits, limits_for
from .metrics import CONTENT_TYPE, Metrics
from .routes import Served, served
from .service import TurnService
from .stored import stored_responses
from .telemetry import Telemetry, telemetry_for


def create_app(
    settings: Settings,
    backends: Mapping[str, Backend] | None = None,
    journal: JournalLike | None = None,
    *,
    mounts: Sequence[APIRouter] = (),
    clock: Clock | None = None,
    metrics_dir: Path | None = None,
) -> FastAPI:
    """The gateway. backends, journal: built from the settings where they are not given.

    mounts: routers of other rooms (the dashboard), served behind the same key. metrics_dir: where
    several workers add up their metrics (see ``metrics.py``). The backends are closed when the
    application ends. Raises ``SettingsError``.
    """
    settings = with_defaults(settings)
    clock = clock or Clock()
    access = access_for(settings, clock)
    used = build(settings) if backends is None else backends
    metrics = Metrics(frozenset(settings.models), metrics_dir)
    kept = kept_for(settings, clock)
    pricer = Pricer(settings)
    limits = limits_for(settings, pricer, clock)
    journal = Journal(settings.data_path) if journal is None else journal
    choosing = Choosing(settings, used, pricer, clock)
    telemetry = telemetry_for(settings)
    settle = (limits.settle, choosing.settle, *telemetry.settle)
    ledger = Ledger(journal, metrics, pricer, settle)
    vendors = frozenset(n for n, b in settings.backends.items() if b.kind in VENDOR_KINDS)
    parts = (settings.models, choosing, ledger, clock, limits)
    app = FastAPI(
        title="agentspec",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=_closing(used, kept, pricer, access, limits, choosing, telemetry),
    )
    services = (
        TurnService(*parts, vendors=vendors, payloads=settings.store.payloads),
        EmbeddingService(*parts, vendors=vendors),
    )
    app.router.routes.extend(
        _endpoints(served(*services, settings.models, used, kept), access, clock, settings)
    )
    locked = [Depends(_key_check(access))]
    app.include_router(_operations(settings, used))
    app.include_router(_figures(metrics), dependencies=locked)
    app.include_router(_models(Catalogue(settings.models, used, clock), access))
    app.include_router(stored_responses(kept, access))
    for router in mounts:
        app.include_router(router, dependencies=locked)
    _install_errors(app, clock)
    return app


def _endpoints(
    served: Iterable[Served], access: Access, clock: Clock, settings: Settings
) -> Iterator[Route]:
    server, asked = settings.server, settings.telemetry
    exporting = asked.otlp_url is not None and asked.traces
    tracing = partial(begin, exporting=exporting, chance=asked.sample)
    for path, answering, errors in served:
        endpoint = Endpoint(
            answering,
            errors,
            access,
            clock,
            tracing,
            max_body_bytes=server.max_body_bytes,
            keepalive_s=server.keepalive_s,
        )
        # Some clients end the path with a slash, and few send a body again after a redirect.
        for spelled in (path, f"{path}/"):
            yield Route(spelled, endpoint, methods=["POST"])


def _closing(
    backends: Mapping[str, Backend],
    kept: Kept,
    pricer: Pricer,
    access: Access,
    limits: Limits,
    choosing: Choosing,
    telemetry: Telemetry,
) -> Callable[[FastAPI], contextlib.AbstractAsyncContextManager[None]]:
    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with pricer.reading():
            choosing.start()
            yield
        await choosing.aclose()
        await limits.aclose()
        await access.aclose()
        for backend in backends.values():
            await backend.aclose()
        kept.close()
        await telemetry.aclose()

    return lifespan


def _key_check(access: Access) -> Callable[[Request], Awaitable[None]]:
    async def check(request: Request) -> None:
        if not (await access.operator(request.headers)).key_id:
            check_name(request.headers)

    return check


def _operations(settings: Settings, backends: Mapping[str, Backend]) -> APIRouter:
    """What operators ask. Open to all: it tells no more than that the gateway is there."""
    router = APIRouter()
    default_model = next(iter(settings.models))

    def page(path: str) -> Callable[[Callable[[], Awaitable[Response]]], object]:
        return router.api_route(path, methods=["GET", "HEAD"])

    @page("/")
    async def entrance() -> Response:
        """For whoever opens the address, and Claude Code, which asks whether anybody is there."""
        return _json({"service": "agentspec", "dashboard": "/dashboard", "api": "/v1"})

    @page("/health")
    async def health() -> Response:
        return _json({"status": "ok", "version": __version__})

    @page("/ready")
    async def ready() -> Response:
        for name in settings.models[default_model].backends:
            if await backends[name].health():
                return _json({"status": "ready", "model": default_model, "backend": name})
        return _json({"status": "waiting", "model": default_model}, status=503)

    return router


def _figures(metrics: Metrics) -> APIRouter:
    router = APIRouter()

    @router.api_route("/metrics", methods=["GET", "HEAD"])
    async def figures() -> Response:
        return Response(metrics.page(), media_type=CONTENT_TYPE)

    return router


def _models(catalogue: Catalogue, access: Access) -> APIRouter:
    """The models, in the shape of the vendor whose header the client sends."""
    router = APIRouter()

    asking = ["GET", "HEAD"]

    @router.api_route("/v1/models", methods=asking)
    @router.api_route("/v1/models/", methods=asking)
    async def models(request: Request) -> Response:
        found = await catalogue.list(await access.identify(request.headers))
        anthropic = _speaks_anthropic(request)
        return _json(anthropic_list(found, request.query_params) if anthropic else found)

    @router.api_route("/v1/models/{model_id:path}", methods=asking)
    async def model(request: Request, model_id: str) -> Response:
        found = await catalogue.get(model_id, await access.identify(request.headers))
        return _json(anthropic_card(found) if _speaks_anthropic(request) else found)

    return router


def _speaks_anthropic(request: Request) -> bool:
    return "anthropic-version" in request.headers or request.url.path.startswith("/v1/messages")


def _install_errors(app: FastAPI, clock: Clock) -> None:
    """Errors of all that is no ``Endpoint``, each under an id as an endpoint's have one."""

    def told(
        request: Request, error: AgentspecError, status: int, headers: Mapping[str, str]
    ) -> Response:
        name = clock.request_id()
        if _speaks_anthropic(request):
            body, id_header = anthropic_body(error, name), {"request-id": name}
        else:
            body, id_header = openai_body(error), {"x-request-id": name}
        return _json(body, status=status, headers=id_header | dict(headers))

    @app.exception_handler(AgentspecError)
    async def ours(request: Request, error: AgentspecError) -> Response:
        anthropic = _speaks_anthropic(request)
        status = anthropic_status(error) if anthropic else http_status(error)
        headers = dict(error.headers)
        if status == 401 and request.url.path.startswith("/dashboard"):
            headers["www-authenticate"] = 'Basic realm="agentspec", charset="UTF-8"'
        return told(request, error, status, headers)

    @app.exception_handler(HTTPException)
    async def others(request: Request, error: HTTPException) -> Response:
        code = {404: "unknown_url", 405: "method_not_allowed"}.get(error.status_code)
        kind = NotFound if error.status_code == 404 else InvalidRequest
        words = f"{error.detail}: {request.method} {request.url.path}"
        refusal = kind(words, code=code or "http_error")
        return told(request, refusal, error.status_code, error.headers or {})

    @app.exception_handler(Exception)
    async def unforeseen(request: Request, _: Exception) -> Response:
        return told(request, InternalError("Something failed in the gateway."), 500, {})


def _json(
    value: object, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(
        encode(value),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/json",
    )
