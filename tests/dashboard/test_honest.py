"""What a page must not say: that nothing was paid where nobody knows, that all were where some
were, that a filter held which it does not know, that a row's link leads to its requests."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from agentspec.dashboard.explore_page import DIMENSIONS
from agentspec.dashboard.load_page import warnings as load_warnings
from agentspec.dashboard.speculation_page import warnings
from agentspec.store import grouping, migrate
from agentspec.store.concurrency import Run, bands, merged
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import application
from tests.dashboard.html import figure, slugs, table
from tests.dashboard.rows import agents_day, store
from tests.dashboard.test_pages import tile, words
from tests.store.ledger import EPOCH_MS

DASH = "\u2013"


def nowhere(number: int) -> RequestRecord:
    """A request that was refused before a backend was chosen: no key, no class, no cost."""
    return RequestRecord(
        id=f"nowhere-{number}",
        ts_ms=EPOCH_MS - 1000 - number,
        model="gpt-9",
        status="error",
        http_status=404,
    )


@pytest.fixture(scope="module")
def day() -> list[RequestRecord]:
    return agents_day(80, seed=9)[0] + [nowhere(n) for n in range(3)]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, day) -> Iterator[TestClient]:
    url = f"sqlite:///{tmp_path_factory.mktemp('day') / 'agentspec.db'}"
    migrate.upgrade(url)
    store(url, day, agents_day(80, seed=9)[1])
    with TestClient(application(url)) as client:
        yield client


def over(path: Path, records: list[RequestRecord]) -> TestClient:
    url = f"sqlite:///{path / 'agentspec.db'}"
    migrate.upgrade(url)
    store(url, records, [])
    return TestClient(application(url))


def made(number: int, **fields: Any) -> RequestRecord:
    return RequestRecord(id=f"r{number}", ts_ms=EPOCH_MS - 1000 * (number + 1), **fields)


def linked(markup: str) -> list[tuple[str, list[str]]]:
    """(address, cells) of the rows of a table whose first cell is a link."""
    found = []
    for row in re.findall(r"<tr>(.*?)</tr>", markup, re.S):
        link = re.search(r'<th scope="row"[^>]*><a href="([^"]+)">', row)
        if link:
            cells = re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)
            found.append((html.unescape(link.group(1)), [words(cell).strip() for cell in cells]))
    return found


def listed(client: TestClient, address: str) -> int:
    return len(set(re.findall(r'href="/dashboard/requests/([^"?]+)"', client.get(address).text)))


LINKED = [f"/dashboard/{name}" for name in ("cache", "cost", "engines", "keys", "routing")]
LINKED += ["/dashboard", "/dashboard/speculation", "/dashboard/structured"]
LINKED += [f"/dashboard/explore?by={by}&then=status" for by in DIMENSIONS]


@pytest.mark.parametrize("path", LINKED)
def test_a_row_s_link_leads_to_as_many_requests_as_it_says(path: str, client: TestClient):
    text = client.get(path).text
    followed = 0
    for slug in slugs(text):
        markup = figure(text, slug)
        head = (table(markup) or [[]])[0]
        for address, cells in linked(markup):
            if "Requests" in head and address.startswith("/dashboard/requests?"):
                told = int(cells[head.index("Requests")].replace(",", ""))
                assert listed(client, address) == told, address
                followed += 1
    bare = ("project", "spec_arm", "surface", "response_format")
    assert followed or any(f"by={name}" in path for name in bare)


def test_requests_that_ran_nowhere_can_be_filtered(client: TestClient):
    address = "/dashboard/requests?backend=(none)"
    assert listed(client, address) == 3
    page = client.get(address).text
    assert '<option value="(none)" selected>' in page


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ("/dashboard?modle=gpt-9", "modle"),
        ("/dashboard/load?range=7days", "range"),
        ("/dashboard/requests?measure=cost_nusd", "measure"),
        ("/dashboard/keys?at=gpt-9", "at"),
        ("/dashboard/overview.csv?block=cost&clint=codex", "clint"),
        ("/dashboard/latency.csv?block=goodput&ttft=3", "ttft"),
    ],
)
def test_what_a_page_does_not_know_is_refused_by_name(path: str, named: str, client: TestClient):
    answer = client.get(path)
    assert answer.status_code == 400
    assert f"'{named}'" in html.unescape(answer.text)


def test_keys_follow_the_filters(client: TestClient, day: list[RequestRecord]):
    text = client.get("/dashboard/keys?model=gpt-9").text
    shown = {row[1]: int(row[3]) for row in table(figure(text, "usage"))[1:]}
    mine = [r for r in day if r.model == "gpt-9"]
    assert shown == {
        key or "(none)": sum(r.key_id == key for r in mine) for key in {r.key_id for r in mine}
    }
    assert '<option value="gpt-9" selected>' in text


def test_a_table_that_needs_too_many_rows_is_no_empty_csv(client: TestClient, monkeypatch):
    monkeypatch.setattr(grouping, "SCANNED", 10)
    answer = client.get("/dashboard/speculation.csv?block=classes&client=codex")
    assert answer.status_code == 400 and "choose a shorter range" in answer.text
    assert "choose a shorter range" in client.get("/dashboard/keys?workload=edit").text


def test_filters_that_let_nothing_through_say_so(client: TestClient):
    page = words(client.get("/dashboard?model=nobody").text)
    assert "The filters above let nothing through" in page and "curl" not in page


def test_what_nobody_knows_is_not_nothing(tmp_path: Path):
    """Requests without a price: no page may show $0 for them."""
    records = [made(n, model="m", backend="own", session_id="s", client="c") for n in range(3)]
    records.append(made(3, model="free", backend="given", session_id="t", cost_nusd=0))
    with over(tmp_path, records) as client:
        overview = client.get("/dashboard").text
        places = {row[0]: row[-1] for row in table(figure(overview, "places"))[1:]}
        assert places == {"m": DASH, "free": "$0"}
        assert "What 3 requests of this range cost isn't known" in words(figure(overview, "cost"))
        sessions = client.get("/dashboard/sessions").text
        shown = {row[0]: row[-1] for row in table(figure(sessions, "sessions"))[1:]}
        assert shown == {"s": DASH, "t": "$0"}
        assert tile(client.get("/dashboard/sessions/s").text, "Cost") == "unknown"
        assert tile(client.get("/dashboard/sessions/t").text, "Cost") == "$0"
        explored = client.get("/dashboard/explore?measure=cost_nusd&by=model").text
        assert {row[0]: row[1] for row in table(figure(explored, "groups"))[1:]} == places
        keys = client.get("/dashboard/keys?model=m").text
        assert table(figure(keys, "usage"))[1][-1] == DASH


def test_some_unknown_costs_are_counted_beside_the_chart(tmp_path: Path):
    records = [made(0, cost_nusd=10**9, cost_out_nusd=10**9), made(1)]
    with over(tmp_path, records) as client:
        markup = figure(client.get("/dashboard").text, "cost")
    assert "Not in it: 1 request of unknown cost." in words(markup) and "<svg" in markup


def test_the_mean_time_of_an_answer_is_of_answers(tmp_path: Path):
    """A lost request has no end, and an error's says nothing of an answer's."""
    records = [made(0, e2e_ms=1000.0), made(1, e2e_ms=3000.0)]
    records += [made(2, status="lost"), made(3, status="error", e2e_ms=1.0)]
    with over(tmp_path, records) as client:
        lines = client.get("/dashboard/explore.csv?block=groups&measure=mean_e2e_ms").text
    assert lines.split("\r\n")[1] == ",2000.0,2"


def drafted(model: str, source: str, accepted: int) -> tuple:
    sources = {source: {"drafted": 1000, "accepted": accepted}}
    return ("edit", sources, 300, accepted, model, "engine", "id", 1000, 9)


def test_a_good_draft_beside_it_hides_no_bad_one():
    """Together 550 of 1000 are accepted, but one model's draft is at 0.2."""
    found = list(warnings([drafted("good", "dspark", 900), drafted("bad", "dspark", 200)]))
    assert len(found) == 1 and "(bad on engine)" in found[0]


@pytest.mark.parametrize("source", ["forced", "suffix", "suffix_tree", "ngram"])
def test_copied_drafts_are_no_model_s(source: str):
    assert list(warnings([drafted("m", source, 100)])) == []


def test_a_server_that_does_not_tell_who_drafts_is_not_said_to_have_a_model():
    (found,) = warnings([drafted("m", "llamacpp", 100)])
    assert found.startswith("Drafts of") and "doesn't tell" in found


def test_acceptance_by_position_of_each_class(client: TestClient, day: list[RequestRecord]):
    text = client.get("/dashboard/speculation.csv?block=by_class").text
    head, *lines = [line.split(",") for line in text.split("\r\n")[:-1]]
    names = [name.removeprefix("accepted_share_") for name in head[1:]]
    assert set(names) == {r.workload for r in day if r.spec_steps}
    for position, *shares in lines:
        for name, share in zip(names, shares, strict=True):
            hists = [r.spec_hist for r in day if r.workload == name]
            kept = sum(sum(hist[int(position) :]) for hist in hists)
            assert float(share) == pytest.approx(kept / sum(map(sum, hists)))


def test_in_flight_is_counted_for_each_backend_by_itself(tmp_path: Path):
    """A slow vendor's call beside each of ours: they don't share an engine."""
    records = []
    for number in range(6):
        at = {"ts_ms": EPOCH_MS - 100_000 + 10_000 * number, "out_tok": 11}
        for backend, ms in (("engine", 1000.0), ("paid", 5000.0)):
            times = {"ttft_ms": 0.0, "e2e_ms": ms, "tpot_ms": ms / 10}
            id = f"{backend}-{number}"
            records.append(RequestRecord(id=id, backend=backend, **at, **times))  # type: ignore[arg-type]
    with over(tmp_path, records) as client:
        page = client.get("/dashboard/load").text
    shown = table(figure(page, "throughput"))[1:]
    assert [row[:2] for row in shown] == [["1", "12"]]
    assert tile(page, "Most at once") == "up to 1"


def test_bands_of_backends_add_up():
    ours = bands([Run(0, 100, 10, 5.0, "on"), Run(50, 150, 10, 7.0, "on")])
    theirs = bands([Run(0, 100, 30, 9.0, "off")])
    one, two = merged([ours, theirs])
    assert one.runs == 2 and sorted(one.tpot_ms["on"] + one.tpot_ms["off"]) == [5.0, 9.0]
    assert one.busy_ms["on"] == 100.0 and one.busy_ms["off"] == 100.0
    assert two.runs == 1 and two.tpot_ms["on"] == [7.0]
    assert ours[0].runs == 1


def test_the_cliff_is_told_of_the_backend_that_has_it():
    bad = [
        Run(1000 * n, 1000 * n + 100, 10, 9.0 if n < 6 else 5.0, "on" if n < 6 else "off")
        for n in range(12)
    ]
    good = [
        Run(1000 * n, 1000 * n + 100, 10, 2.0 if n < 6 else 5.0, "on" if n < 6 else "off")
        for n in range(12)
    ]
    (found,) = load_warnings({"bad": bands(bad), "good": bands(good)})
    assert "'bad'" in found and "0.56" in found


def test_money_s_links_are_of_whole_backends(client: TestClient, day: list[RequestRecord]):
    """The page's sums leave the filters aside, and so do their links."""
    markup = figure(client.get("/dashboard/cost?client=codex").text, "billed")
    found = dict(linked(markup))
    for address, cells in found.items():
        assert listed(client, address) == int(cells[1])
    assert sum(int(cells[1]) for cells in found.values()) == len(day)


@pytest.mark.parametrize("path", ["/dashboard", "/dashboard/speculation", "/dashboard/load"])
def test_each_figure_links_to_its_rows(path: str, client: TestClient):
    text = client.get(path).text
    for slug in slugs(text):
        assert "/dashboard/requests" in figure(text, slug), slug
