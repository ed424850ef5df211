"""A gateway with keys in its database, and a clock that can be put forward."""

from __future__ import annotations

import contextlib
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import httpx

from agentspec.gateway.app import create_app
from agentspec.gateway.clock import Clock
from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    PriceSettings,
    ServerSettings,
    Settings,
    StoreSettings,
)
from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.keys import KeyRecord, KeyStore, NewKey, key_owner, project_owner
from tests.gateway.serving import Gateway, ListJournal, running


@dataclass
class Ahead:
    """Time that can be put forward, wall and monotonic together."""

    by_s: float = 0.0

    def clock(self) -> Clock:
        return Clock(lambda: time.time() + self.by_s, lambda: time.perf_counter() + self.by_s)


def key_store(url: str) -> KeyStore:
    return KeyStore(connect(url), lambda: time.time_ns() // 1_000_000)


@dataclass
class Keyed:
    """Where gateways are started, and the keys that they look up. url: of the database."""

    folder: Path
    upstream: str
    url: str
    ahead: Ahead = field(default_factory=Ahead)

    def key(
        self, name: str = "k", project: str | None = None, **limits: int
    ) -> tuple[KeyRecord, str]:
        """Make a key with limits; ``project_rpm`` and the like are its project's."""
        store = key_store(self.url)
        try:
            if project is not None and project not in self._projects:
                store.create_project(project)
                self._projects.add(project)
            key, secret = store.create(NewKey(name, project))
            own = {k: v for k, v in limits.items() if not k.startswith("project_")}
            store.set_limits(key_owner(key.id), own)
            shared = {
                k.removeprefix("project_"): v for k, v in limits.items() if k.startswith("project_")
            }
            store.set_limits(project_owner(project), shared)
        finally:
            store.close()
        return key, secret

    _projects: set[str] = field(default_factory=set)

    def settings(
        self, *, server: dict[str, Any] | None = None, kind: Literal["engine", "openai"] = "engine"
    ) -> Settings:
        price = PriceSettings(input_usd_per_m=1.0, cached_usd_per_m=1.0, output_usd_per_m=1.0)
        priced = ModelSettings(backends=["up"], price=price, aliases=["claude-good"])
        bare = ModelSettings(backends=["up"], price=price)
        return Settings(
            data_dir=str(self.folder / "data"),
            server=ServerSettings(**(server or {})),
            store=StoreSettings(url=self.url),
            backends={"up": BackendSettings(kind=kind, url=self.upstream)},
            models={
                "good": priced,
                "uncounted": bare,
                "zeros": bare,
                "busy": bare,
                "waits": ModelSettings(backends=["up"]),
            }
            | {name: ModelSettings(backends=["up"]) for name in ("broken", "tools")},
        )

    @contextlib.asynccontextmanager
    async def gateway(self, secret: str | None = None, **settings: Any) -> AsyncIterator[Gateway]:
        """A gateway whose client sends that key."""
        journal = ListJournal()
        app = create_app(self.settings(**settings), journal=journal, clock=self.ahead.clock())
        headers = {} if secret is None else {"authorization": f"Bearer {secret}"}
        async with (
            running(app) as url,
            httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, headers=headers) as http,
        ):
            yield Gateway(url, http, journal)


@cache
def empty_ledger() -> bytes:
    """A database without rows: migrated once, not for each test."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "agentspec.db"
        migrate.upgrade(f"sqlite:///{file}")
        assert [path.name for path in file.parent.iterdir()] == [file.name]
        return file.read_bytes()


def keyed(folder: Path, upstream: str) -> Keyed:
    file = folder / "agentspec.db"
    file.write_bytes(empty_ledger())
    return Keyed(folder, upstream, f"sqlite:///{file}")
