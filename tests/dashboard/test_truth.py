"""The figures of the pages against plain arithmetic over the same rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from agentspec.dashboard.cache_page import pauses
from agentspec.dashboard.decision import explained
from agentspec.dashboard.explore_page import DIMENSIONS, MEASURES
from agentspec.dashboard.load_page import _speedup
from agentspec.dashboard.routing_page import kind_of, tally
from agentspec.dashboard.sheet import Block, Column, csv_text
from agentspec.store import migrate, times
from agentspec.store.concurrency import Band
from agentspec.store.goodput import Level, goodput
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import application
from tests.dashboard.html import figure, table
from tests.dashboard.rows import agents_day, store
from tests.store.ledger import EPOCH_MS


@pytest.fixture(scope="module")
def day() -> list[RequestRecord]:
    return agents_day(200, seed=5)[0]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    url = f"sqlite:///{tmp_path_factory.mktemp('day') / 'agentspec.db'}"
    migrate.upgrade(url)
    store(url, *agents_day(200, seed=5))
    with TestClient(application(url)) as client:
        yield client


def rows(client: TestClient, path: str, slug: str) -> list[list[str]]:
    return table(figure(client.get(path).text, slug))[1:]


def whole(cell: str) -> int:
    return int(cell.replace(",", ""))


def near(cell: str, value: float) -> bool:
    """A share as the pages print it: "62 %" of 0.6179."""
    printed = cell.replace("\u202f%", "")
    digits = len(printed.partition(".")[2])
    return float(printed) == pytest.approx(100 * value, abs=0.51 / 10**digits)


def test_acceptance_by_class_and_source(client: TestClient, day: list[RequestRecord]):
    truth: Counter[tuple[str, str, str]] = Counter()
    for record in day:
        if record.spec_steps:
            for source, told in record.spec_sources.items():
                for name, count in told.items():
                    truth[record.workload, source, name] += count
    shown = rows(client, "/dashboard/speculation", "sources")
    assert {(row[0], row[1]) for row in shown} == {key[:2] for key in truth}
    for workload, source, drafted, accepted, vain, rate in shown:
        d, a = (truth[workload, source, name] for name in ("drafted", "accepted"))
        assert (whole(drafted), whole(accepted), whole(vain)) == (d, a, d - a)
        assert near(rate, a / d)


def test_acceptance_by_position(client: TestClient, day: list[RequestRecord]):
    steps = sum(sum(r.spec_hist) for r in day)
    for position, share in rows(client, "/dashboard/speculation", "positions"):
        kept = sum(sum(r.spec_hist[int(position) :]) for r in day)
        assert near(share, kept / steps)


def test_the_warning_is_for_model_drafts_under_a_half_only(client: TestClient, day):
    page = client.get("/dashboard/speculation").text
    warned = set(re.findall(r"Model drafts of the class &#39;(\w+)&#39;", page))
    truth = set()
    for workload in {r.workload for r in day}:
        told = [r.spec_sources.get("dspark", {}) for r in day if r.workload == workload]
        drafted, accepted = (sum(t.get(n, 0) for t in told) for n in ("drafted", "accepted"))
        truth |= {workload} if accepted < 0.5 * drafted else set()
    assert warned == truth == {"chat"}


def test_goodput_at_limits_of_the_url(client: TestClient, day: list[RequestRecord]):
    limits = {"ttft_ms": 300, "tpot_ms": 20, "e2e_ms": 4000}
    path = "/dashboard/latency?" + "&".join(f"{name}={ms}" for name, ms in limits.items())
    for backend, good, late, failed, share in rows(client, path, "goodput"):
        mine = [r for r in day if r.backend == backend and r.status != "cancelled"]
        ok = [r for r in mine if r.status == "ok"]
        met = sum(all((getattr(r, name) or 0) <= ms for name, ms in limits.items()) for r in ok)
        assert [whole(good), whole(late), whole(failed)] == [
            met,
            len(ok) - met,
            len(mine) - len(ok),
        ]
        assert near(share, met / len(mine))


def test_an_answer_in_one_piece_has_its_first_token_at_its_end():
    """Not streamed, or nothing but a tool call that was held back: no first token was timed."""
    rows = [("b", "ok", None, None, 900.0, 50), ("b", "ok", None, None, 1100.0, 50)]
    found = goodput([*rows, ("b", "ok", None, None, None, 50)], Level(ttft_ms=1000, tpot_ms=10))
    assert (found["b"].good, found["b"].late) == (1, 2)


def test_the_cache_by_client_and_by_pause(client: TestClient, day: list[RequestRecord]):
    for name, count, tokens, cached, share in rows(client, "/dashboard/cache", "by_client"):
        mine = [r for r in day if r.client == name]
        sums = [len(mine), sum(r.in_tok for r in mine), sum(r.cached_tok for r in mine)]
        assert [whole(count), whole(tokens), whole(cached)] == sums
        assert near(share, sums[2] / sums[1])
    turns = [("s", "k", t, 100, c) for t, c in ((0, 0), (59_000, 90), (119_000, 50), (9**7, 1))]
    turns += [("", "k", 5, 100, 100), ("s", "other", 6, 100, 100)]
    told = pauses(turns)
    assert told["under 1 min"] == [1, 100, 90] and told["1 to 5 min"] == [1, 100, 50]
    assert told["over 1 h"] == [1, 100, 1] and told["5 min to 1 h"] == [0, 0, 0]


def test_structured_output(client: TestClient, day: list[RequestRecord]):
    cold, warm = (sum(r.grammar_cold is value for r in day) for value in (True, False))
    shown = rows(client, "/dashboard/structured", "grammars")
    assert [whole(row[1]) for row in shown] == [cold, warm]
    refused = sum(r.error_code == "constraint_not_met" for r in day)
    told = rows(client, "/dashboard/structured", "refused")
    assert sum(whole(row[2]) for row in told) == refused > 0
    tools = rows(client, "/dashboard/structured", "tools")
    assert sum(whole(row[1]) for row in tools) == sum(r.tool_calls for r in day)
    assert sum(whole(row[3]) for row in tools) == sum(
        r.tool_calls - r.tool_calls_valid for r in day
    )


def test_routing(client: TestClient, day: list[RequestRecord]):
    attempts: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    for record in day:
        for attempt in record.decision["attempts"]:  # type: ignore[attr-defined]
            attempts[attempt["backend"]] += 1
            failed[attempt["backend"]] += "error" in attempt
    for backend, tries, bad, _, errors in rows(client, "/dashboard/routing", "attempts"):
        assert [whole(tries), whole(bad)] == [attempts[backend], failed[backend]]
        assert ("upstream_unreachable" in errors) == (failed[backend] > 0)
    for model, backend, count, share, _ in rows(client, "/dashboard/routing", "shares"):
        mine = [r for r in day if r.model == model]
        there = sum(r.backend == backend for r in mine)
        assert whole(count) == there and near(share, there / len(mine))
    reasons = rows(client, "/dashboard/routing", "reasons")
    assert sum(whole(row[3]) for row in reasons) == len(day)


def test_decisions_of_another_form_are_told_as_far_as_they_go():
    odd = [{}, {"policy": 3}, {"attempts": None, "candidates": 7, "propensity": "x"}]
    assert sum(tally(odd).policies.values()) == 2
    for one in [*odd, {"candidates": [None, {"predicted": []}], "task": [], "attempts": [1]}]:
        explained(one)
    assert kind_of("waited 12.5 ms for 3") == "waited # ms for #"


@pytest.mark.parametrize("by", [name for name in DIMENSIONS if name != "project"])
def test_the_explorer_sums_by_every_property(by: str, client: TestClient, day):
    shown = rows(client, f"/dashboard/explore?measure=in_tok&by={by}", "groups")
    truth: Counter[str] = Counter()
    for record in day:
        truth[getattr(record, by) or "(none)"] += record.in_tok
    assert {row[0]: whole(row[1]) for row in shown} == truth


@pytest.mark.parametrize("measure", MEASURES)
def test_the_explorer_has_every_measure(measure: str, client: TestClient, day):
    path = f"/dashboard/explore.csv?block=groups&measure={measure}&by=workload&then=client"
    lines = client.get(path).text.split("\r\n")[1:-1]
    keys = {tuple(line.split(",")[:2]) for line in lines}
    assert keys == {(r.workload, r.client) for r in day}
    if measure == "accepted_length":
        for line in lines:
            workload, name, value, _ = line.split(",")
            mine = [r for r in day if (r.workload, r.client) == (workload, name)]
            steps = sum(r.spec_steps for r in mine)
            assert float(value) == pytest.approx(1 + sum(r.spec_accepted for r in mine) / steps)


def test_sessions_and_the_timeline_of_one(client: TestClient, day: list[RequestRecord]):
    shown = {row[0]: row for row in rows(client, "/dashboard/sessions", "sessions")}
    assert set(shown) == {r.session_id for r in day}
    name = day[3].session_id
    mine = sorted((r for r in day if r.session_id == name), key=lambda r: (r.ts_ms, r.id))
    assert whole(shown[name][4]) == len(mine)
    assert whole(shown[name][6]) == sum(r.tool_calls for r in mine)
    page = client.get(f"/dashboard/sessions/{name}?key={mine[0].key_id}").text
    links = re.findall(r'<th scope="row"><a href="/dashboard/requests/([^"]+)">(\d+)<', page)
    assert links == [(r.id, str(at)) for at, r in enumerate(mine, 1)]
    assert page.count('<span class="call') == sum(r.tool_calls for r in mine)
    cost = sum(r.cost_nusd or 0 for r in mine)
    assert f"${cost / 1e9:,.2f}" in page
    assert client.get(f"/dashboard/sessions/{name}?key=nobody").status_code == 404


def test_many_sessions_go_on_over_pages(tmp_path: Path):
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    made = [
        RequestRecord(id=f"r{n}", ts_ms=EPOCH_MS - 2 - n // 2, session_id=f"s.{n}")
        for n in range(230)
    ]
    store(url, made, [])
    seen: list[str] = []
    with TestClient(application(url)) as client:
        path: str | None = "/dashboard/sessions"
        while path:
            page = client.get(path).text
            seen += [row[0] for row in table(figure(page, "sessions"))[1:]]
            found = re.search(r'rel="next" href="([^"]+)"', page)
            path = found.group(1).replace("&amp;", "&") if found else None
    assert len(seen) == len(set(seen)) == 230


def test_a_text_that_looks_like_a_formula_is_no_formula():
    columns = [Column("Name", "name"), Column("n", "n", str)]
    block = Block("x", "x", "x", columns, [("=1+1", -3), ("@x", None), ("a,b", 1.5)])
    assert csv_text(block) == "name,n\r\n'=1+1,-3\r\n'@x,\r\n\"a,b\",1.5\r\n"


def test_percentiles_are_near_those_of_the_rows(client: TestClient, day: list[RequestRecord]):
    lines = client.get("/dashboard/latency.csv?block=by_backend").text.split("\r\n")[1:-1]
    for backend, title, count, *found in (line.split(",") for line in lines):
        name = {"First token": "ttft_ms", "Whole answer": "e2e_ms", "Queued": "queue_ms"}
        column = name.get(title, "tpot_ms")
        mine = [r for r in day if r.backend == backend and r.status == "ok"]
        values = sorted(v for r in mine if (v := getattr(r, column)) is not None)
        assert int(count) == len(values)
        for percent, value in zip((50, 90, 95, 99), found, strict=True):
            rank = -(-percent * len(values) // 100)
            assert float(value) == pytest.approx(values[rank - 1], rel=0.0056)


def test_a_speedup_needs_five_requests_of_either():
    """One request against four said 3.76 times, which nobody would see again."""
    few, many = Band(1, 1), Band(2, 2)
    few.tpot_ms |= {"on": [10.0] * 9, "off": [20.0] * 4}
    many.tpot_ms |= {"on": [10.0] * 9, "off": [20.0] * 5}
    found = _speedup({"engine": [few, many]})
    assert [row[2:] for row in found.rows] == [(9, 4, None), (9, 5, 2.0)]
    form = found.columns[4].form
    assert form
    assert [form(row[4]) for row in found.rows] == ["\u2013", "2.00\u00d7"]


def test_percentiles_under_filters_that_only_rows_hold_are_those_of_the_rollups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Client and class together are in no rollup; here every request is of one client, so that the
    class alone asks for the same. All rows are looked at once for each table."""
    records, notes = agents_day(150, seed=2)
    for record in records:
        record.client = "codex"
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    store(url, records, notes)
    asked: list[str] = []
    with TestClient(application(url)) as client:
        for block in ("by_backend", "by_model"):
            path = f"/dashboard/latency.csv?block={block}&workload=edit"
            by_rollups = client.get(path).text
            monkeypatch.setattr(times, "counts", lambda *_: asked.append("a kind") or {})
            assert client.get(f"{path}&client=codex").text == by_rollups
            monkeypatch.undo()
            assert len(by_rollups.split("\r\n")) > 4 and asked == []
