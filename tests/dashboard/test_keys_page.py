"""The page of keys and projects: what it shows, what it must not, and that it changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.keys import KeyStore, NewKey, key_owner, project_owner
from agentspec.store.leases import Ask, Leases
from tests.dashboard.conftest import HOSTILE, application
from tests.dashboard.test_pages import POLICY, words
from tests.store.ledger import EPOCH_MS

NOW_MS = EPOCH_MS - 1
MINUTE_MS = NOW_MS - NOW_MS % 60_000


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    return url


@pytest.fixture
def client(url: str) -> Iterator[TestClient]:
    with TestClient(application(url)) as client:
        yield client


@pytest.fixture
def keys(url: str) -> Iterator[KeyStore]:
    store = KeyStore(connect(url), lambda: NOW_MS)
    yield store
    store.close()


def test_without_keys_it_says_how_to_make_one(client):
    answer = client.get("/dashboard/keys")
    assert answer.status_code == 200
    assert "agentspec keys create NAME" in words(answer.text)


def test_keys_projects_and_what_is_used(client, keys, url):
    keys.create_project("team")
    key, secret = keys.create(NewKey("laptop", project="team", models=["a", "b"]))
    gone, _ = keys.create(NewKey("old"))
    keys.revoke(gone.id)
    keys.set_limits(key_owner(key.id), {"rpm": 40, "usd_total": 8_000_000_000})
    keys.set_limits(project_owner("team"), {"usd_total": 16_000_000_000})
    leases = Leases(connect(url), "gateway", lambda: NOW_MS)
    leases.exchange(
        [
            Ask((key_owner(key.id), "rpm", MINUTE_MS), 40, spent=10),
            Ask((key_owner(key.id), "usd_total", 0), 8_000_000_000, spent=1_000_000_000, held=0),
            Ask(("project:team", "usd_total", 0), 16_000_000_000, spent=4_000_000_000),
        ]
    )
    leases.close()
    answer = client.get("/dashboard/keys")
    shown = words(answer.text)
    assert answer.headers["content-security-policy"] == POLICY
    assert "requests a minute: 10 of 40 (25 %)" in shown
    assert "in all: $1.00 of $8.00" in shown and "in all: $4.00 of $16.00 (25 %)" in shown
    assert "revoked" in shown and "a, b" in shown and key.id in shown
    assert secret not in answer.text


def test_names_are_text(client, keys):
    keys.create_project(HOSTILE)
    keys.create(NewKey(HOSTILE, project=HOSTILE, models=[HOSTILE], cache_scope="project"))
    page = client.get("/dashboard/keys").text
    assert "<script>alert" not in page and "<img src=x" not in page and "alert" in page


def test_it_only_reads(client):
    assert client.post("/dashboard/keys").status_code == 405
