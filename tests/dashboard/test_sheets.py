"""Every page over no row, one, and many: well-formed, accessible, and the same as the rows say."""

from __future__ import annotations

import csv
import io
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.testclient import TestClient

from agentspec.dashboard.context import Context, EngineState
from agentspec.dashboard.pages import MENU
from agentspec.settings import PoolSettings
from agentspec.store import grouping, migrate
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import application
from tests.dashboard.html import Page, figure, slugs, sql, table
from tests.dashboard.rows import agents_day, store

COUNT = 240
CONTEXT = Context(
    pools={"engine": PoolSettings(gpus=1, gpu_usd_per_h=2.5)},
    engines=lambda: [
        EngineState("engine", "engine", "http://127.0.0.1:8001", "ok", running=2.0, waiting=1.0),
        EngineState("spare", "vllm", "http://10.0.0.3", "takes no requests now"),
    ],
)


@pytest.fixture(scope="module")
def day() -> list[RequestRecord]:
    return agents_day(COUNT)[0]


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("day") / "agentspec.db"
    migrate.upgrade(f"sqlite:///{path}")
    store(f"sqlite:///{path}", *agents_day(COUNT))
    return path


@pytest.fixture(scope="module")
def many(ledger: Path) -> Iterator[TestClient]:
    with TestClient(application(f"sqlite:///{ledger}", context=CONTEXT)) as client:
        yield client


@pytest.fixture(scope="module")
def few(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, TestClient]]:
    """Dashboards over no row and over one."""
    clients = {}
    for count in (0, 1):
        path = tmp_path_factory.mktemp(f"few{count}") / "agentspec.db"
        migrate.upgrade(f"sqlite:///{path}")
        if count:
            store(f"sqlite:///{path}", *agents_day(count))
        clients[count] = TestClient(application(f"sqlite:///{path}", context=CONTEXT))
    yield clients
    for client in clients.values():
        client.close()


def check(text: str) -> Page:
    """What holds for every page."""
    page = Page(text)
    assert len(page.all("h1")) == len(page.all("main")) == len(page.all("header")) == 1
    ids = [attrs["id"] for _, attrs in page.found if "id" in attrs]
    assert len(ids) == len(set(ids))
    for picture in page.all("svg"):
        assert picture["role"] == "img" and picture["aria-label"]
    for region in page.all("div"):
        if "scroll" in (region.get("class") or "").split():
            assert region["tabindex"] == "0" and region["aria-label"]
    assert text.count("<table") == text.count("<caption")
    for control in ("select", "input"):
        hidden = len([a for a in page.all(control) if a.get("type") == "hidden"])
        labelled = len(re.findall(rf"<label>[^<]*\s*<{control}", text))
        assert labelled == len(page.all(control)) - hidden
    return page


@pytest.mark.parametrize("path", MENU)
@pytest.mark.parametrize("count", [0, 1])
def test_a_page_of_nothing_and_of_one_row(count: int, path: str, few: dict[int, TestClient]):
    answer = few[count].get(path)
    assert answer.status_code == 200
    check(answer.text)
    tiles = dict(re.findall(r"<dt>([^<]+)</dt>\s*<dd class=\"value\">([^<]*)</dd>", answer.text))
    if count == 0:  # a rate of nothing isn't known, which is not 0
        rates = ("Accepted length", "Acceptance rate", "Hit share", "Valid", "Goodput", "By chance")
        assert {tiles[name] for name in rates if name in tiles} <= {"\u2013"}


@pytest.mark.parametrize("path", [*MENU, "/dashboard/sessions/session-0003"])
def test_a_page_of_many_rows(path: str, many: TestClient):
    answer = many.get(path)
    assert answer.status_code == 200
    page = check(answer.text)
    for link in page.all("a"):
        assert (link["href"] or "").startswith(("/dashboard", "#main"))


@pytest.mark.parametrize("path", [p for p in MENU if p != "/dashboard/requests"])
def test_each_csv_is_its_table(path: str, many: TestClient):
    text = many.get(path).text
    compared = 0
    for slug in slugs(text):
        markup = figure(text, slug)
        link = re.search(r'href="([^"]+\.csv\?[^"]+)"', markup)
        assert link, slug
        answer = many.get(link.group(1).replace("&amp;", "&"))
        assert answer.headers["content-type"] == "text/csv; charset=utf-8"
        rows = list(csv.reader(io.StringIO(answer.text)))
        shown = table(markup)
        if not shown:
            continue
        assert len(rows) == len(shown) and len(set(rows[0])) == len(rows[0])
        for line, cells in zip(rows[1:], shown[1:], strict=True):
            for value, cell in zip(line, cells, strict=True):
                if re.fullmatch(r"[\d,]+", cell):
                    assert float(value) == pytest.approx(float(cell.replace(",", "")), abs=0.5)
                    compared += 1
                elif not re.search(r"\d", cell):
                    assert cell == (value or cell)
    assert compared or path in ("/dashboard/keys", "/dashboard/engines")


@pytest.mark.parametrize("path", [p for p in MENU if p != "/dashboard/requests"])
def test_the_sql_that_is_shown_runs_as_it_is(path: str, many: TestClient, ledger: Path):
    text = many.get(path).text
    database = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    statements = [one for slug in slugs(text) for one in sql(figure(text, slug))]
    assert statements
    for statement in statements:
        database.execute(statement).fetchall()
    database.close()


def test_a_row_s_own_sql_gives_its_numbers(many: TestClient, ledger: Path, day):
    markup = figure(many.get("/dashboard/explore?measure=out_tok&by=client").text, "groups")
    database = sqlite3.connect(f"file:{ledger}?mode=ro", uri=True)
    found: dict[str, int] = {}
    for statement in sql(markup):
        for client, tokens, _ in database.execute(statement):
            found[client] = found.get(client, 0) + tokens
    database.close()
    shown = {row[0]: int(row[1].replace(",", "")) for row in table(markup)[1:]}
    truth = {name: sum(r.out_tok for r in day if r.client == name) for name in found}
    assert shown == found == truth


FILTERED = {
    "model=gpt-9": lambda r: r.model == "gpt-9",
    "workload=tool&backend=engine": lambda r: (r.workload, r.backend) == ("tool", "engine"),
    "client=codex&key=key-0": lambda r: (r.client, r.key_id) == ("codex", "key-0"),
    "client=codex&workload=edit": lambda r: (r.client, r.workload) == ("codex", "edit"),
}


@pytest.mark.parametrize("query", FILTERED)
def test_filters_hold_on_every_page(query: str, many: TestClient, day: list[RequestRecord]):
    mine = [r for r in day if FILTERED[query](r)]
    text = many.get(f"/dashboard/explore?by=status&{query}").text
    shown = {row[0]: int(row[1]) for row in table(figure(text, "groups"))[1:]}
    assert shown == {s: sum(r.status == s for r in mine) for s in {r.status for r in mine}}
    for path in MENU:
        page = check(many.get(f"{path}?{query}").text)
        if path not in ("/dashboard/keys",):
            links = [parse_qs(urlsplit(a["href"] or "").query) for a in page.all("a")]
            wanted = {name: [value] for name, value in parse_qs(query).items() for value in value}
            assert any(wanted.items() <= link.items() for link in links)
    listed = many.get(f"/dashboard/requests?{query}").text
    assert set(re.findall(r'href="/dashboard/requests/([^"?]+)"', listed)) <= {r.id for r in mine}


def test_what_only_rows_tell_is_refused_of_too_many(many: TestClient, monkeypatch):
    monkeypatch.setattr(grouping, "SCANNED", COUNT - 1)
    for path in ("/dashboard/speculation", "/dashboard/explore.csv"):
        answer = many.get(f"{path}?client=codex&workload=edit")
        assert answer.status_code == 400 and "client, workload" in answer.text
    page = many.get("/dashboard/speculation?client=codex")
    assert page.status_code == 200 and "choose a shorter range" in figure(page.text, "classes")


def test_a_session_s_requests_are_listed_of_however_many(many: TestClient, monkeypatch):
    """They have an index; other pairs of filters would have every row read."""
    monkeypatch.setattr(grouping, "SCANNED", COUNT - 1)
    listed = many.get("/dashboard/requests?session=session-0000&model=smollm2-135m-instruct")
    assert listed.status_code == 200 and 'href="/dashboard/requests/01890000' in listed.text
    assert many.get("/dashboard/requests?client=codex&workload=edit").status_code == 400


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/dashboard/latency?ttft_ms=fast", "ttft_ms"),
        ("/dashboard/latency?e2e_ms=-1", "e2e_ms"),
        ("/dashboard/latency?tpot_ms=nan", "tpot_ms"),
        ("/dashboard/explore?measure=password", "measure"),
        ("/dashboard/explore?by=id", "by"),
        ("/dashboard/cost?at=nobody", "at"),
    ],
)
def test_a_bad_parameter_is_named(path: str, named: str, many: TestClient):
    answer = many.get(path)
    assert answer.status_code == 400 and f"&#39;{named}&#39;" in answer.text
    check(answer.text)
    bare, _, query = path.partition("?")
    assert many.get(f"{bare}.csv?{query}&block=x").status_code == 400


def test_an_unknown_table_is_404(many: TestClient):
    assert many.get("/dashboard/load.csv?block=nothing").status_code == 404


def test_colours_are_remembered_and_lead_back_inside_only(ledger: Path):
    with TestClient(application(f"sqlite:///{ledger}"), follow_redirects=False) as client:
        page = client.get("/dashboard/load?range=7d").text
        assert "data-theme" not in page
        (link,) = re.findall(r'href="(/dashboard/theme/dark[^"]+)"', page)
        answer = client.get(link)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/dashboard/load?range=7d"
        assert 'data-theme="dark"' in client.get("/dashboard/load").text
        for there in ("https://else.test/", "//else.test/", "/dashboard//else.test", "/v1/models"):
            answer = client.get("/dashboard/theme/auto", params={"next": there})
            assert answer.headers["location"] == "/dashboard"
        assert "data-theme" not in client.get("/dashboard/load").text
