"""Every backend of the settings asked how it is, for the dashboard's page of engines."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from urllib.parse import urlsplit

from agentspec.backends.base import Backend
from agentspec.backends.load import Load, TellsLoad
from agentspec.backends.registry import build
from agentspec.backends.version import TellsVersion
from agentspec.dashboard.context import EngineState
from agentspec.settings import VENDOR_KINDS, Settings
from agentspec.wire.errors import AgentspecError

LIMIT_S = 3.0
"""No backend is waited for longer."""


def engine_states(settings: Settings) -> Sequence[EngineState]:
    """The state of each backend, in the order of the settings. Blocks for ``LIMIT_S`` at most; call
    it from a thread without a running event loop. Addresses are told without what may be secret in
    them (user, password, query)."""
    return asyncio.run(_ask(settings))


async def _ask(settings: Settings) -> Sequence[EngineState]:
    backends = build(settings)
    try:
        states = (_state(settings, name, backend) for name, backend in backends.items())
        return await asyncio.gather(*states)
    finally:
        for backend in backends.values():
            await backend.aclose()


async def _state(settings: Settings, name: str, backend: Backend) -> EngineState:
    chosen = settings.backends[name]
    where = address(chosen.url)
    if chosen.kind in VENDOR_KINDS:
        return EngineState(name, chosen.kind, where, "not asked")
    try:
        async with asyncio.timeout(LIMIT_S):
            healthy = await backend.health()
    except TimeoutError:
        return EngineState(name, chosen.kind, where, f"no answer within {LIMIT_S:g} s")
    if not healthy:
        return EngineState(name, chosen.kind, where, "takes no requests now")
    load, version = await asyncio.gather(_load(backend), _version(backend))
    return EngineState(
        name,
        chosen.kind,
        where,
        "ok",
        version=version,
        running=load.running if load else None,
        waiting=load.waiting if load else None,
        kv_used=load.kv_used if load else None,
        accepted_length=load.accepted_length if load else None,
    )


async def _load(backend: Backend) -> Load | None:
    if not isinstance(backend, TellsLoad):
        return None
    try:
        async with asyncio.timeout(LIMIT_S):
            return await backend.load()
    except (AgentspecError, TimeoutError):
        return None


async def _version(backend: Backend) -> str | None:
    if not isinstance(backend, TellsVersion):
        return None
    try:
        async with asyncio.timeout(LIMIT_S):
            return await backend.version()
    except (AgentspecError, TimeoutError):
        return None


def address(url: str | None) -> str:
    """Scheme, host and port of a URL."""
    if not url:
        return ""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port else ""
    return f"{parts.scheme}://{parts.hostname or ''}{port}"
