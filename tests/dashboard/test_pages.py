"""The pages' content, headers and errors."""

from __future__ import annotations

import base64
import hashlib
import html
import random
import re
import threading
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fastapi import HTTPException, Request
from starlette.testclient import TestClient

from agentspec.dashboard.cursor import cursor, parse_cursor
from agentspec.dashboard.pages import MENU, request_url
from agentspec.dashboard.ranges import RANGES, parse_range
from agentspec.store import migrate
from agentspec.store.board import Board
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import application
from tests.store.ledger import EPOCH_MS, insert, random_record

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self' data:; script-src 'self'; "
    "connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
PAGES = [
    *MENU,
    "/dashboard?range=30d",
    "/dashboard/requests/none",
    "/dashboard/sessions/none",
    "/dashboard/sessions/s1",
    "/dashboard/latency?ttft_ms=x",
]


class Tags(HTMLParser):
    """Every element with its attributes."""

    def __init__(self, page: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def words(page: str) -> str:
    """The text of a page as it is read."""
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", page)))


def tile(page: str, name: str) -> str:
    found = re.search(rf"<dt>{name}</dt>\s*<dd class=\"value\">([^<]*)</dd>", page)
    assert found, name
    return html.unescape(found.group(1))


@pytest.mark.parametrize("path", PAGES)
def test_pages_carry_the_policy_and_nothing_it_forbids(path: str, client: TestClient):
    answer = client.get(path)
    assert answer.headers["content-security-policy"] == POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"
    tags = Tags(answer.text).found
    assert not [tag for tag, _ in tags if tag in ("style", "iframe", "object", "base")]
    assert not [a for _, attrs in tags for a in attrs if a == "style" or a.startswith("on")]
    for script in (attrs for tag, attrs in tags if tag == "script"):
        assert re.fullmatch(r"/dashboard/static/[\w./-]+\?v=[0-9a-f]{12}", script["src"] or "")
        digest = base64.b64encode(hashlib.sha384(client.get(script["src"]).content).digest())
        assert script["integrity"] == f"sha384-{digest.decode()}"
    assert not re.search(r"<script[^>]*>[^<]", answer.text)


def test_tiles_say_what_the_rows_say(client: TestClient, records: list[RequestRecord]):
    page = client.get("/dashboard?range=24h").text
    assert tile(page, "Requests") == str(len(records))
    failed = sum(r.status in ("error", "lost") for r in records)
    assert tile(page, "Failed").startswith(f"{100 * failed / len(records):.0f}")
    steps = sum(sum(r.spec_hist) for r in records)
    accepted = sum(j * n for r in records for j, n in enumerate(r.spec_hist))
    assert tile(page, "Accepted length") == f"{1 + accepted / steps:.2f}"
    assert tile(page, "Spend") == f"${sum(r.cost_nusd or 0 for r in records) / 1e9:.2f}"


def test_each_figure_has_a_caption_a_picture_and_its_table(client: TestClient):
    page = client.get("/dashboard?range=24h").text
    figures = re.findall(r"<figure.*?</figure>", page, re.S)
    assert len(figures) == 9
    for figure in figures:
        assert re.search(r"<figcaption>\s*<h2>[^<]+</h2>\s*<p>[^<]+</p>", figure)
        assert re.search(r"<table>.*<td", figure, re.S) and "SELECT" in figure
        if "wide" in figure[:60]:
            continue
        assert re.search(r'<svg class="chart"[^>]* role="img" aria-label="[^"]+"', figure)
        assert re.search(r"<details>.*<table>.*<td", figure, re.S)


def test_the_series_table_adds_up(client: TestClient, records: list[RequestRecord]):
    page = client.get("/dashboard?range=24h").text
    figure = re.findall(r"<figure.*?</figure>", page, re.S)[0]
    cells = [int(c.replace(",", "")) for c in re.findall(r'<td class="n">([\d,]+)</td>', figure)]
    assert sum(cells) == len(records) and len(cells) == 2 * 48


def test_ranges_are_links_and_the_chosen_one_is_marked(client: TestClient):
    for chosen in RANGES:
        page = client.get(f"/dashboard?range={chosen.name}").text
        current = [a for t, a in Tags(page).found if t == "a" and a.get("aria-current") == "true"]
        links = [a["href"] for a in current if "/theme/" not in (a["href"] or "")]
        assert links == [f"/dashboard?range={chosen.name}"]


@pytest.mark.parametrize("chosen", RANGES)
def test_a_window_is_whole_buckets_up_to_now(chosen):
    for now_ms in (EPOCH_MS, EPOCH_MS + 1, EPOCH_MS + chosen.bucket_ms - 1):
        window = chosen.window(now_ms)
        assert window.since_ms % chosen.bucket_ms == 0
        assert window.until_ms - window.since_ms == chosen.buckets * chosen.bucket_ms
        assert window.until_ms - chosen.bucket_ms <= now_ms < window.until_ms
    assert parse_range("nonsense") == parse_range("24h")


def test_the_list_filters_and_pages_on(tmp_path: Path):
    rng = random.Random(1)
    rows = [random_record(rng, n, span_ms=3_000_000) for n in range(230)]
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    insert(url, rows)
    with TestClient(application(url)) as client:
        seen, path = [], "/dashboard/requests?range=1h"
        while path:
            tags = Tags(client.get(path).text).found
            links = [a.get("href") or "" for t, a in tags if t == "a"]
            seen += [h for h in links if re.match(r"/dashboard/requests/[^?]", h)]
            path = next((a["href"] for t, a in tags if a.get("rel") == "next"), None)
        newest_first = sorted(rows, key=lambda r: (r.ts_ms, r.id), reverse=True)
        assert seen == [request_url(r) for r in newest_first]

        page = client.get("/dashboard/requests?range=1h&session=s1&status=ok").text
        shown = re.findall(r'href="/dashboard/requests/([^"?]+)"', page)
        assert set(shown) == {r.id for r in rows if r.session_id == "s1" and r.status == "ok"}


@pytest.mark.parametrize("text", ["", "x", "1", "-1.a", "\u0661.a", "1" * 16 + ".a"])
def test_what_is_no_cursor_starts_from_the_top(text: str, client: TestClient):
    assert parse_cursor(text) is None
    assert client.get("/dashboard/requests", params={"before": text}).status_code == 200


def test_a_cursor_survives_its_url():
    record = RequestRecord(id="a.b/c", ts_ms=17)
    assert parse_cursor(cursor(record)) == (17, "a.b/c")


def test_one_request_shows_everything_about_it(client: TestClient, records: list[RequestRecord]):
    record = next(r for r in records if r.status == "ok" and r.spec_hist and r.ttft_ms)
    answer = client.get(request_url(record))
    assert answer.status_code == 200
    shown = words(answer.text)
    for value in (record.id, record.model, record.backend, record.session_id):
        assert value in shown
    assert f"Fresh input {record.in_tok - record.cached_tok:,}" in shown
    assert f"Accepted {record.spec_accepted:,}" in shown
    assert "Where the time went" in shown


def test_hostile_names_are_text(client: TestClient, records: list[RequestRecord]):
    hostile = records[-1]
    for path in ("/dashboard", "/dashboard/requests", request_url(hostile)):
        page = client.get(path).text
        tags = Tags(page).found
        assert not [t for t, a in tags if (t == "script" and "src" not in a) or a.get("src") == "x"]
        assert hostile.model in html.unescape(page)
    session = {"session": hostile.session_id}
    assert len(re.findall("<tr>", client.get("/dashboard/requests", params=session).text)) == 2


def test_an_unknown_request_is_404(client: TestClient):
    answer = client.get("/dashboard/requests/<b>none</b>")
    assert answer.status_code == 404
    assert "<b>" not in answer.text and "&lt;b&gt;none" in answer.text


def test_an_empty_ledger_says_how_to_make_the_first_request(empty_client: TestClient):
    page = empty_client.get("/dashboard?range=1h").text
    assert "curl http://gateway.test:8000/v1/chat/completions" in html.unescape(page)
    assert "No requests in the last hour" in page and "<svg" not in page


def test_no_database_is_503_and_says_what_to_do(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    with TestClient(application(url)) as client:
        answer = client.get("/dashboard")
        assert answer.status_code == 503 and "unable to open" in answer.text
        assert answer.headers["content-security-policy"] == POLICY
        (tmp_path / "agentspec.db").touch()
        assert "agentspec db upgrade" in client.get("/dashboard/requests").text
        migrate.upgrade(url)
        assert client.get("/dashboard").status_code == 200


def test_pages_ask_for_permission_and_assets_do_not(ledger_url: str):
    def authorize(request: Request) -> None:
        if request.headers.get("authorization") != "Bearer right":
            raise HTTPException(401)

    with TestClient(application(ledger_url, authorize=authorize)) as client:
        for path in PAGES:
            assert client.get(path).status_code == 401
        sheet = Tags(client.get("/dashboard", headers={"authorization": "Bearer right"}).text)
        (href,) = [a["href"] or "" for _, a in sheet.found if a.get("rel") == "stylesheet"]
        assert client.get(href).status_code == 200


def test_assets_are_cached_for_good_and_nothing_else_is_served(client: TestClient):
    tags = Tags(client.get("/dashboard").text).found
    links = [a["href"] for t, a in tags if t == "link" and a["href"]]
    links += [a["src"] for t, a in tags if t == "script" and a["src"]]
    assert len(links) == 5
    for href in links:
        plain = client.get(href, headers={"accept-encoding": "identity"})
        answer = client.get(href)
        assert "content-encoding" not in plain.headers and answer.content == plain.content
        assert answer.headers["content-encoding"] == "gzip"
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert re.search(r"\?v=[0-9a-f]{12}$", href)
    for name in ("app.py", "..%2fapp.py", "%2e%2e/app.py", "dashboard.css/"):
        assert client.get(f"/dashboard/static/{name}", follow_redirects=False).status_code != 200


def test_the_database_is_asked_off_the_event_loop(ledger_url: str, monkeypatch: pytest.MonkeyPatch):
    threads = []
    real = Board.look

    def look(self: Board, *args, **options):
        threads.append(threading.current_thread())
        return real(self, *args, **options)

    monkeypatch.setattr(Board, "look", look)
    loop: list[threading.Thread] = []
    app = application(ledger_url)

    @app.get("/loop")
    async def where() -> None:
        loop.append(threading.current_thread())

    with TestClient(app) as client:
        client.get("/loop")
        client.get("/dashboard")
    assert threads and threads[0] is not loop[0]


@pytest.mark.postgres
def test_the_same_pages_over_postgresql(
    new_postgres: Callable[[], str], client: TestClient, records: list[RequestRecord]
):
    """But for the SQL, which is the database's own."""
    url = new_postgres()
    migrate.upgrade(url)
    insert(url, records)
    ours = re.compile(r'<details class="sql">.*?</details>', re.S)
    mixed = "/dashboard/explore?by=client&then=workload&measure=mean_e2e_ms"
    with TestClient(application(url)) as other:
        for path in (*MENU, request_url(records[0]), "/dashboard/sessions/s1", mixed):
            theirs, here = other.get(path), client.get(path)
            assert theirs.status_code == here.status_code == 200
            assert ours.sub("", theirs.text) == ours.sub("", here.text), path
