"""Routing inside the gateway: rows teach it, at the start from SQL and then as they end."""

from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from agentspec.bench.route import logged
from agentspec.cli import main
from agentspec.gateway.choosing import Choosing, outcome_of
from agentspec.gateway.clock import Clock
from agentspec.routing.decision import Situation
from agentspec.routing.taskclass import TaskClass
from agentspec.settings import (
    BackendSettings,
    ModelSettings,
    PriceSettings,
    Settings,
    with_defaults,
)
from agentspec.settings_routing import RoutingSettings
from agentspec.store.database import connect
from agentspec.store.history import read_history
from agentspec.store.migrate import upgrade
from agentspec.store.pricer import Pricer
from agentspec.store.record import RequestRecord
from agentspec.store.rows import to_row
from agentspec.store.schema import request
from tests.gateway.conftest import start, up  # noqa: F401

NAMES = {"a": "good", "b": "good"}


def routed(url: str, policy: str = "learned", **routing: object) -> Settings:
    """Two backends on one server; b asks a tenth of a's prices."""
    prices = {"a": 10.0, "b": 1.0}
    backends = {
        name: BackendSettings(
            kind="openai",
            url=url,
            constrained=True,
            price=PriceSettings(input_usd_per_m=p, cached_usd_per_m=p, output_usd_per_m=p),
        )
        for name, p in prices.items()
    }
    model = ModelSettings(backends=["a", "b"], upstream_names=NAMES)
    return Settings(
        backends=backends,
        models={"m": model},
        routing=RoutingSettings(policy=policy, poll_s=0.05, **routing),  # type: ignore[arg-type]
    )


async def test_a_gateway_learns_and_logs(start, up, tmp_path):  # noqa: F811
    settings = routed(up.url, "cheapest", shadow="learned")
    settings.data_dir = str(tmp_path)
    async with start(settings=settings) as gateway:
        for turn in range(12):
            answer = await gateway.chat("m", stream=turn % 2 == 0, prompt_cache_key=f"s{turn}")
            assert answer.status_code == 200
        rows = gateway.journal.closed
    assert len(rows) == 12 and {row.status for row in rows} == {"ok"}
    assert [row.backend for row in rows[-4:]] == ["b"] * 4  # each was tried, b is cheaper
    last = rows[-1].decision
    assert last["policy"] == "cheapest" and last["propensity"] == 1.0
    assert last["shadow"]["policy"] == "learned"  # type: ignore[index]
    costs = {
        c["backend"]: c["predicted"]["cost_nusd"]
        for c in last["candidates"]  # type: ignore[attr-defined]
    }
    assert costs["a"] == pytest.approx(10 * costs["b"], rel=0.1)
    assert {row.upstream_model for row in rows} == {"good"}


@pytest.mark.parametrize("stream", [False, True])
async def test_a_deadline_holds_for_every_backend(start, up, stream):  # noqa: F811
    async with start() as gateway:
        answer = await gateway.chat("silent", stream=stream, agentspec={"deadline_ms": 50})
        assert answer.status_code == 504
        assert answer.json()["error"]["code"] == "deadline_exceeded"
        await asyncio.wait_for(up.left.wait(), 10)
        row = gateway.journal.row
        assert (row.status, row.error_code, row.attempts) == ("error", "deadline_exceeded", 1)
        refused = await gateway.chat("good", stream=stream, agentspec={"deadline_ms": 0})
        assert refused.status_code == 400
        assert refused.json()["error"]["param"] == "agentspec.deadline_ms"
        again = await gateway.chat("good", stream=stream, agentspec={"deadline_ms": 60_000})
        assert again.status_code == 200


async def test_a_backend_that_is_away_is_noticed_before_anybody_asks_it(
    start,  # noqa: F811
    up,  # noqa: F811
    tmp_path,
    free_port,
):
    settings = routed(up.url, "fixed")
    settings.data_dir = str(tmp_path)
    settings.backends["a"].url = f"http://127.0.0.1:{free_port()}"
    async with start(settings=settings) as gateway:
        async with asyncio.timeout(20):
            while True:
                answer = await gateway.chat("m")
                assert answer.status_code == 200
                if gateway.journal.closed[-1].attempts == 1:
                    break
        assert gateway.journal.closed[-1].backend == "b"


def row(number: int, backend: str, chance: float, cost_nusd: int) -> RequestRecord:
    predicted = {"cost_nusd": cost_nusd, "met": 0.9, "load": 1.0, "ttft_ms": 100.0}
    candidates = [
        {"backend": name, "eligible": True, "reason": "", "chance": c, "predicted": predicted}
        for name, c in (("a", 0.75), ("b", 0.25))
    ]
    return RequestRecord(
        id=f"{number:032x}",
        ts_ms=1_790_000_000_000 + number * 1000,
        model="m",
        upstream_model="good",
        backend=backend,
        session_id=f"s{number // 4}",
        client="codex",
        workload="tool",
        in_tok=1000,
        out_tok=50,
        ttft_ms=200.0,
        tpot_ms=10.0,
        e2e_ms=700.0,
        cost_nusd=cost_nusd,
        cost_fresh_nusd=cost_nusd,
        cost_cached_nusd=0,
        cost_out_nusd=0,
        decision={
            "policy": "learned",
            "chosen": backend,
            "reason": "the least expected loss",
            "propensity": chance,
            "task": {"kind": "tool", "client": "codex", "schema": "ab", "guess_tok": 900},
            "load": 3.0,
            "candidates": candidates,
            "attempts": [{"backend": backend}],
        },
    )


def ledger(tmp_path, count: int = 200) -> Settings:
    settings = routed("http://127.0.0.1:9")
    settings.data_dir = str(tmp_path)
    settings.make_data_dir()
    upgrade(settings.database_url)
    engine = connect(settings.database_url)
    rows = [
        row(n, *(("b", 0.25, 2_000_000) if n % 4 == 0 else ("a", 0.75, 40_000_000)))
        for n in range(count)
    ]
    with engine.begin() as connection:
        connection.execute(sa.insert(request), [to_row(one) for one in rows])
    engine.dispose()
    return settings


def test_history_is_the_newest_rows_oldest_first(tmp_path):
    settings = ledger(tmp_path)
    found = read_history(settings.database_url, 5, ("m",))
    assert [one.ts_ms for one in found] == [1_790_000_000_000 + n * 1000 for n in range(195, 200)]
    assert read_history(settings.database_url, 5, ("other",)) == []
    outcome = outcome_of(found[-1])
    assert (outcome.backend, outcome.task.schema, outcome.load) == ("a", "ab", 3.0)
    assert (outcome.ttft_s, outcome.token_s, outcome.guess_tok) == (0.2, 0.01, 900)
    assert outcome.cost_nusd == 40_000_000


async def test_a_gateway_begins_with_what_the_ledger_knows(tmp_path):
    """Decisions don't wait for it; once it has been read, predictions are those of the rows."""
    settings = with_defaults(ledger(tmp_path))
    choosing = Choosing(settings, {}, Pricer(settings), Clock())
    situation = Situation(
        "m", "new", "tool", ("a", "b"), task=TaskClass("tool", "codex"), guess_tok=900, names=NAMES
    )

    def expected_ms() -> dict[str, float]:
        candidates = choosing.router.decide(situation).candidates
        return {c.backend: (c.predicted or {})["ttft_ms"] or 0.0 for c in candidates}

    before = expected_ms()
    choosing.start()
    async with asyncio.timeout(30):
        while expected_ms() == before:
            await asyncio.sleep(0.01)
    assert expected_ms() == pytest.approx({"a": 200.0, "b": 200.0}, rel=0.1)
    await choosing.aclose()


@pytest.mark.parametrize(
    ("change", "blame", "status"),
    [
        ({"status": "error", "http_status": 502}, True, "error"),
        ({"status": "error", "http_status": 429}, True, "error"),
        ({"status": "error", "http_status": 400}, False, "error"),
        ({"status": "cancelled", "http_status": 499}, False, "cancelled"),
        ({"status": "lost", "http_status": None}, True, "cancelled"),
    ],
)
def test_whose_fault_a_row_is(change, blame, status):
    one = row(1, "a", 1.0, 1)
    for name, value in change.items():
        setattr(one, name, value)
    outcome = outcome_of(one)
    assert outcome.status == status and (status == "cancelled" or outcome.blame is blame)


def test_policies_are_judged_on_the_ledger(tmp_path):
    settings = ledger(tmp_path)
    rows = read_history(settings.database_url, 1000)
    found = {v.policy: v for v in logged.verdicts(rows, settings, ["static:a", "static:b"])}
    cheap, dear = found["static:b"], found["static:a"]
    # All answers met the target, so that the loss is the money: 0.002 and 0.04 USD.
    assert cheap.loss.snips.mean == pytest.approx(0.002) == cheap.usd.snips.mean
    assert dear.loss.snips.mean == pytest.approx(0.04)
    assert cheap.slo.snips.mean == 1.0 and cheap.loss.support == 1.0
    assert cheap.loss.logged == pytest.approx(0.75 * 0.04 + 0.25 * 0.002)
    assert cheap.loss.dr.mean == pytest.approx(0.002, abs=0.01)


def test_the_commands(tmp_path, capsys):
    settings = ledger(tmp_path)
    config = tmp_path / "c.toml"
    config.write_text(
        "[backends.a]\nkind='openai'\nurl='http://127.0.0.1:9'\n"
        "[backends.b]\nkind='openai'\nurl='http://127.0.0.1:9'\n"
        "[models.m]\nbackends=['a','b']\n"
    )
    where = ["--data-dir", settings.data_dir, "--config", str(config)]
    assert main(["route", "explain", f"{7:032x}", *where]) == 0
    out = capsys.readouterr().out
    assert "the least expected loss" in out and "0.2500" in out and "attempt 1   a" in out
    assert main(["route", "explain", "nothing", *where]) == 2
    assert capsys.readouterr().err == "agentspec: no request 'nothing' in the ledger\n"
    mistyped = ["--data-dir", str(tmp_path / "mistyped"), "--config", str(config)]
    for command in (["explain", f"{7:032x}"], ["replay"]):
        assert main(["route", *command, *mistyped]) == 2
        assert "there is no ledger at" in capsys.readouterr().err
    assert not (tmp_path / "mistyped").exists()
    told = tmp_path / "replay.json"
    policies = "static:a,static:b,learned"
    assert main(["route", "replay", "--policy", policies, "--json", str(told), *where]) == 0
    import json

    results = json.loads(told.read_text())["results"]
    assert [r["policy"] for r in results] == policies.split(",")
    assert all({"cost_usd", "slo", "regret"} <= set(r) for r in results)


def test_a_replay_of_a_trace(tmp_path, capsys):
    """A made-up trace: the fields that the results promise, and that learning beats sampling."""
    lines = ["trace_id,chain,t_s,in_tokens,out_tokens,lcp_cached_tokens,think_time_s,output_types"]
    for trace in range(20):
        for turn in range(20):
            shared = 3500 + 1500 * turn if turn else 0
            lines.append(f"t{trace},main,{turn},{5000 + 1500 * turn},200,{shared},2,tool_use")
    trace = tmp_path / "trace.csv"
    trace.write_text("\n".join(lines))
    told = tmp_path / "replay.json"
    policies = "static:dspark,static:paid,learned,thompson:litellm"
    arguments = ["route", "replay", "--trace", str(trace), "--policy", policies, "--n", "1500"]
    arguments += ["--burn-in", "500", "--seeds", "1", "--json", str(told)]
    assert main(arguments) == 0
    import json

    results = {r["policy"]: r for r in json.loads(told.read_text())["results"]}
    assert set(results) == set(policies.split(","))
    assert all({"cost_usd", "slo", "regret"} <= set(r) for r in results.values())
    assert results["learned"]["regret"] < results["thompson:litellm"]["regret"]
    assert main([*arguments[:4], "--policy", "nonsense"]) == 2
    assert main([*arguments[:4], "--change", "1:nowhere:1:1"]) == 2
