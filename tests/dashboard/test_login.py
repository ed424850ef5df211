"""The dashboard behind keys, in a real Chromium: who comes in, and with what."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from playwright.sync_api import Browser, expect

from agentspec.dashboard.app import router
from agentspec.gateway.app import create_app
from agentspec.settings import BackendSettings, ModelSettings, Settings
from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.keys import KeyStore, NewKey
from tests.dashboard.test_browser import browser  # noqa: F401 (fixture)
from tests.gateway.serving import running

pytestmark = pytest.mark.browser


@dataclass
class Locked:
    url: str
    operator: str
    ordinary: str


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    """A whole gateway in whose database there are two keys."""
    folder = tmp_path_factory.mktemp("locked")
    settings = Settings(
        data_dir=str(folder),
        backends={"b": BackendSettings(kind="openai", url="http://127.0.0.1:9")},
        models={"m": ModelSettings(backends=["b"])},
    )
    migrate.upgrade(settings.database_url)
    keys = KeyStore(connect(settings.database_url), lambda: time.time_ns() // 1_000_000)
    _, operator = keys.create(NewKey("me", operator=True))
    _, ordinary = keys.create(NewKey("agent"))
    keys.close()
    started, ended = threading.Event(), threading.Event()
    found: list[str] = []

    async def serve() -> None:
        app = create_app(settings, mounts=[router(settings.database_url)])
        async with running(app) as url:
            found.append(url)
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert started.wait(60)
    yield Locked(found[0], operator, ordinary)
    ended.set()
    thread.join()


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/keys", "/dashboard/overview.csv"])
def test_without_a_key_nobody_comes_in(browser: Browser, locked: Locked, path: str):  # noqa: F811
    page = browser.new_context().new_page()
    answer = page.request.get(locked.url + path)
    assert answer.status == 401 and answer.headers["www-authenticate"].startswith("Basic")
    page.context.close()


def test_an_operators_key_is_the_password(browser: Browser, locked: Locked):  # noqa: F811
    login = {"username": "anybody", "password": locked.operator}
    context = browser.new_context(base_url=locked.url, http_credentials=login)  # type: ignore[arg-type]
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    answer = page.goto("/dashboard")
    assert answer is not None and answer.status == 200
    expect(page.locator("h1")).to_have_text("Overview")
    page.get_by_role("link", name="Keys", exact=True).click()
    expect(page.locator("tbody tr", has_text="agent")).to_have_count(1)
    page.get_by_role("link", name="Live").click()  # what scripts ask for brings the password too
    expect(page.locator("#live")).to_have_count(1)
    assert locked.operator not in page.content() and locked.ordinary not in page.content()
    assert complaints == []
    context.close()


@pytest.mark.parametrize(("key", "status"), [("ordinary", 403), ("wrong", 401)])
def test_others_do_not(browser: Browser, locked: Locked, key: str, status: int):  # noqa: F811
    password = getattr(locked, key, "no such key")
    login = {"username": "anybody", "password": password}
    context = browser.new_context(base_url=locked.url, http_credentials=login)  # type: ignore[arg-type]
    answer = context.new_page().request.get("/dashboard")
    assert answer.status == status and "Overview" not in answer.text()
    context.close()
