"""The filter by project: the requests of the keys in it, on every page, and on both databases."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import pytest
from starlette.testclient import TestClient

from agentspec.dashboard.pages import MENU
from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.keys import KeyStore, NewKey
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import application
from tests.dashboard.html import figure, slugs, sql
from tests.dashboard.rows import agents_day, store
from tests.store.ledger import EPOCH_MS


@pytest.fixture(
    scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)]
)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "postgresql":
        new_postgres: Callable[[], str] = request.getfixturevalue("new_postgres")
        url = new_postgres()
    else:
        url = f"sqlite:///{tmp_path_factory.mktemp('projects') / 'agentspec.db'}"
    migrate.upgrade(url)
    return url


@pytest.fixture(scope="module")
def rows(url: str) -> list[RequestRecord]:
    """A day's requests: those of key-0 are of the project "team", whose other key made none."""
    keys = KeyStore(connect(url), lambda: EPOCH_MS - 1)
    keys.create_project("team")
    keys.create_project("idle")
    mine, _ = keys.create(NewKey("mine", project="team"))
    keys.create(NewKey("unused", project="team"))
    keys.close()
    records, notes = agents_day(120)
    for record in records:
        record.key_id = mine.id if record.key_id == "key-0" else record.key_id
    store(url, records, notes)
    return [record for record in records if record.key_id == mine.id]


@pytest.fixture(scope="module")
def client(url: str, rows: list[RequestRecord]) -> Iterator[TestClient]:
    with TestClient(application(url)) as client:
        yield client


def test_the_pages_take_it(client: TestClient, rows: list[RequestRecord]):
    for path in MENU:
        answer = client.get(path, params={"range": "24h", "project": "team"})
        assert answer.status_code == 200, path
    told = client.get("/dashboard/overview.csv", params={"project": "team", "block": "places"})
    assert sum(counts(told.text)) == len(rows)


def counts(csv: str) -> list[int]:
    """The column "requests" of a table."""
    names, *lines = [line.split(",") for line in csv.strip().splitlines()]
    return [int(line[names.index("requests")]) for line in lines]


def test_the_list_holds_its_rows_alone(client: TestClient, rows: list[RequestRecord]):
    page = client.get("/dashboard/requests", params={"project": "team"}).text
    ids = set(re.findall(r"/dashboard/requests/(01890000[-0-9a-f]+)", page))
    assert ids == {row.id for row in rows}


def test_a_project_without_requests_has_none(client: TestClient):
    for name in ("idle", "no such one"):
        page = client.get("/dashboard/requests", params={"project": name}).text
        assert "01890000-" not in page
        told = client.get("/dashboard/overview.csv", params={"project": name, "block": "places"})
        assert counts(told.text) == []


def test_a_key_that_is_not_in_it_leaves_nothing(client: TestClient):
    asked = {"project": "team", "key": "key-1"}
    assert "01890000-" not in client.get("/dashboard/requests", params=asked).text


def test_it_is_offered_and_kept_in_links(client: TestClient):
    page = client.get("/dashboard/latency", params={"project": "team"}).text
    assert '<option value="team" selected>team</option>' in page
    assert '<option value="idle">idle</option>' in page
    assert "/dashboard/cost?range=24h&amp;project=team" in page


@pytest.mark.parametrize("project", ["team", "idle", "no such one"])
def test_the_sql_shown_runs_as_it_stands(url: str, client: TestClient, project: str):
    page = client.get("/dashboard/speculation", params={"project": project}).text
    told = [one for slug in slugs(page) for one in sql(figure(page, slug))]
    assert any("key_id IN" in one for one in told)
    engine = connect(url)
    with engine.connect() as connection:
        for statement in told:
            connection.exec_driver_sql(statement).all()
    engine.dispose()
