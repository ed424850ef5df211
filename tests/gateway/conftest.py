"""A gateway in front of a stand-in upstream."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import pytest

from agentspec.gateway.app import create_app
from agentspec.settings import BackendSettings, ModelSettings, ServerSettings, Settings
from tests.gateway.scripts import REFUSALS, SCRIPTS, Upstream
from tests.gateway.serving import Gateway, ListJournal, running
from tests.gateway.upstream import running_upstream

StartGateway = Callable[..., contextlib.AbstractAsyncContextManager[Gateway]]


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with running_upstream() as upstream:
        yield upstream


@pytest.fixture
def start(up: Upstream) -> StartGateway:
    """Start a gateway in which every script of the stand-in is a model of that name.

    The stand-in calls tools that no request offers, so its calls are not checked unless asked for
    (``backend={"constrained": False}``).
    """

    @contextlib.asynccontextmanager
    async def start(
        *,
        kind: str = "openai",
        server: dict[str, Any] | None = None,
        backend: dict[str, Any] | None = None,
        settings: Settings | None = None,
    ) -> AsyncIterator[Gateway]:
        names = [*SCRIPTS, *REFUSALS]
        chosen: dict[str, Any] = {"kind": kind, "url": up.url, "constrained": True}
        chosen |= backend or {}
        used = settings or Settings(
            server=ServerSettings(**(server or {})),
            backends={"up": BackendSettings(**chosen)},
            models={name: ModelSettings(backends=["up"]) for name in names},
        )
        journal = ListJournal()
        async with (
            running(create_app(used, journal=journal)) as url,
            httpx.AsyncClient(base_url=url, timeout=20, trust_env=False) as http,
        ):
            yield Gateway(url, http, journal)

    return start


@pytest.fixture
async def gateway(start: StartGateway) -> AsyncIterator[Gateway]:
    async with start() as gateway:
        yield gateway
