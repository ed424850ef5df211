"""The ledger measured: the writer's pace, a database that is away, and questions over many rows."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa

from agentspec.dashboard.context import Context
from agentspec.dashboard.pages import Frame, Pages
from agentspec.dashboard.ranges import RANGES
from agentspec.dashboard.sheets import SHEETS, Builder
from agentspec.dashboard.view import View, parse_view
from agentspec.settings import PoolSettings, StoreSettings
from agentspec.store.acceptance import acceptance
from agentspec.store.board import Board
from agentspec.store.breakdown import breakdown
from agentspec.store.choices import choices
from agentspec.store.database import connect
from agentspec.store.journal import Journal
from agentspec.store.latency import latency
from agentspec.store.reader import Reader
from agentspec.store.rebuild import floors
from agentspec.store.record import RequestRecord
from agentspec.store.requests import Filters, recent
from agentspec.store.rows import write
from agentspec.store.schema import request
from agentspec.store.series import series
from agentspec.store.slices import Slice
from agentspec.store.totals import totals
from agentspec.store.window import Window
from agentspec.store.writer import Writer

from . import processes, report
from .stats import percentile
from .store_databases import Database, made
from .store_migrations import walk
from .synthetic import DAYS, Load

COLUMNS = [
    "database",
    "what",
    "rows_s",
    "p95_ms",
    "n",
    "running",
    "lost",
    "failed",
    "bytes_row",
    "s",
]
PARTS = ("writer", "away", "kills", "migrations", "synthetic")
BATCH_ROWS = 20_000
JSON_COLUMNS = ("spec_sources", "spec_hist", "decision")
_FILTERED = {"": {}, " of a backend": {"backend": "vllm"}, " of a key": {"key": "key-003"}}


@dataclass(frozen=True, slots=True)
class Plan:
    """rows: through journal and writer; synthetic: rows that the questions are asked of."""

    databases: Seq[str]
    parts: Seq[str]
    rows: int
    synthetic: int
    away_s: float
    kills: int
    repeats: int = 20


def run(plan: Plan) -> dict[str, Any]:
    """Every part on every database, each on an empty one; the bench's document."""
    results: list[dict[str, Any]] = []
    for name, part in itertools.product(plan.databases, plan.parts):
        report.progress(f"{name}: {part}")
        if part == "kills":
            found = _kills(name, plan)
        else:
            with made(name) as database:
                measure = {
                    "writer": _writer,
                    "away": _away,
                    "migrations": _migrations,
                    "synthetic": _synthetic,
                }[part]
                found = measure(database, plan)
        results += [{"database": name} | result for result in found]
    return report.build(results)


def _writer(database: Database, plan: Plan) -> list[dict[str, Any]]:
    """From full journals to rows and rollups, in batches as the server's writer takes them when it
    is behind: the traffic of a thousand requests a second."""
    with Journal(database.data_dir()) as journal:
        for row in Load(plan.rows, _now_ms(), span_ms=plan.rows).rows():
            whole = {name: json.loads(row[name]) for name in JSON_COLUMNS}
            journal.close(RequestRecord(**row | whole))
        engine = connect(database.url)
        writer = Writer(engine, database.data_dir())
        began_s = time.perf_counter()
        while writer.drain_once(StoreSettings().drain_rows):
            pass
        took_s = time.perf_counter() - began_s
        writer.close()
        lost = plan.rows - _rows(engine)
        engine.dispose()
    rows_s = round(plan.rows / took_s, 1)
    return [{"what": "writer", "rows_s": rows_s, "n": plan.rows, "lost": lost}]


def _away(database: Database, plan: Plan) -> list[dict[str, Any]]:
    """Two processes journal all the time; the database goes and comes back under them."""
    arguments = ["--data-dir", str(database.data_dir()), "--config", str(database.config())]
    seconds = plan.away_s + 10
    command = [sys.executable, "-m", "agentspec.bench.store_load", str(database.data_dir())]
    with processes.agentspec(["db", "writer", *arguments], database.folder):
        loads = [
            subprocess.Popen([*command, str(seconds), "100", str(seed)], stdout=-1, text=True)
            for seed in (1, 2)
        ]
        time.sleep(5)
        with database.away():
            time.sleep(plan.away_s)
        told = [json.loads(load.communicate()[0]) for load in loads]
        written = sum(one["written"] for one in told)
        caught_up_s, lost = _wait_for(database, written)
    return [
        {
            "what": f"away {plan.away_s:g} s",
            "p95_ms": max(one["p95_ms"] for one in told),
            "n": written,
            "lost": lost,
            "failed": sum(one["failed"] for one in told),
            "caught_up_s": round(caught_up_s, 2),
        }
    ]


def _wait_for(database: Database, rows: int, limit_s: float = 60) -> tuple[float, int]:
    """Seconds until the ledger holds ``rows`` rows, at most the limit, and how many it lacks."""
    engine = connect(database.url)
    began_s = time.monotonic()
    while (lacking := rows - _rows(engine)) > 0 and time.monotonic() - began_s < limit_s:
        time.sleep(0.1)
    engine.dispose()
    return time.monotonic() - began_s, lacking


def _migrations(database: Database, plan: Plan) -> list[dict[str, Any]]:
    return walk(database.url, plan.rows, _now_ms())


def _kills(name: str, plan: Plan) -> list[dict[str, Any]]:
    """``bench kill`` against this database; a process of each kind in turn."""
    import asyncio

    from . import kill

    model = "smollm2-135m-instruct"
    with made(name) as database:
        config = database.config()
        url = database.url
        rounds = asyncio.run(
            kill.run(plan.kills * len(kill.VICTIMS), 16, model, 0, config=config, database=url)
        )
    found = []
    for victim in kill.VICTIMS:
        mine = [one for one in rounds if one["victim"] == victim]
        wrong = sum(len(one["wrong"]) for one in mine)
        running = sum(one["running"] for one in mine)
        found.append(
            {"what": f"kill -9 {victim}", "n": len(mine), "running": running, "lost": wrong}
        )
    return found


def _synthetic(database: Database, plan: Plan) -> list[dict[str, Any]]:
    """Rows and rollups of ``DAYS`` days, then every question of the dashboard over them."""
    now_ms = _now_ms()
    engine = connect(database.url)
    empty = database.bytes()
    rows, done = Load(plan.synthetic, now_ms).rows(), 0
    began_s = time.perf_counter()
    while batch := list(itertools.islice(rows, BATCH_ROWS)):
        with engine.begin() as connection:
            done += write(connection, batch)
        report.progress(f"  {done:,d} of {plan.synthetic:,d} rows")
    took_s = time.perf_counter() - began_s
    if database.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(sa.text("VACUUM ANALYZE"))
    engine.dispose()
    size = (database.bytes() - empty) / max(done, 1)
    filled = {"what": f"fill {DAYS} d", "rows_s": round(done / took_s, 1), "n": done}
    return [filled | {"bytes_row": round(size, 1)}, *_questions(database, plan, now_ms)]


def _questions(database: Database, plan: Plan, now_ms: int) -> list[dict[str, Any]]:
    engine = connect(database.url)
    found: list[dict[str, Any]] = []
    with engine.connect() as connection:
        for chosen in RANGES:
            window = chosen.window(now_ms)
            slice = Slice(window, {}, floors(connection))
            for name, ask in _asked(connection, slice, chosen.bucket_ms, window).items():
                found.append({"what": f"{name} {chosen.name}"} | _timed(ask, plan))
    engine.dispose()
    reader = Reader(database.url)
    for chosen in RANGES:
        page = lambda c=chosen: reader.overview(c.window(now_ms), c.bucket_ms)  # noqa: E731
        found.append({"what": f"whole page {chosen.name}"} | _timed(page, plan))
    reader.close()
    return found + _pages(database, plan, now_ms)


def _pages(database: Database, plan: Plan, now_ms: int) -> list[dict[str, Any]]:
    """The dashboard's other pages, questions and rendering, over the longest range: of all
    requests, of one backend, of one key; with pools, whose bills and savings are the most work."""
    board, pages = Board(database.url), Pages()
    pool = PoolSettings(gpus=1, gpu_usd_per_h=2.5)
    context = Context(pools={"engine": pool, "vllm": pool})
    found = []
    for (name, build), (of, filters) in itertools.product(SHEETS.items(), _FILTERED.items()):
        query = {"range": RANGES[-1].name, **filters}
        view = parse_view(f"/dashboard/{name}", query, now_ms)

        def page(view: View = view, build: Builder = build) -> None:
            with board.look(view.window, view.where) as look:
                offered = look.ask(choices)
                sheet = build(look, view, context)
            pages.sheet(Frame("", view.path), view, sheet, offered)

        found.append({"what": f"page {name}{of} {view.chosen.name}"} | _timed(page, plan))
    board.close()
    return found


def _asked(
    connection: sa.Connection, slice: Slice, bucket_ms: int, window: Window
) -> dict[str, Callable[[], object]]:
    """The dashboard's questions, by name."""
    key = replace(slice, where={"key_id": "key-003"})
    by_session = Filters(session_id="session-0000000007")
    return {
        "totals": lambda: totals(connection, slice),
        "series": lambda: series(connection, slice, bucket_ms),
        "acceptance": lambda: acceptance(connection, slice),
        "ttft": lambda: latency(connection, slice, "ttft", rows=False),
        "e2e": lambda: latency(connection, slice, "e2e", rows=False),
        "places": lambda: breakdown(connection, slice),
        "totals of a key": lambda: totals(connection, key),
        "ttft of a key": lambda: latency(connection, key, "ttft", rows=False),
        "newest": lambda: recent(connection, window, 100),
        "newest lost": lambda: recent(connection, window, 100, filters=Filters(status="lost")),
        "of no such key": lambda: recent(connection, window, 100, where={"key_id": "nobody's"}),
        "a session": lambda: recent(connection, window, 100, filters=by_session),
    }


def _timed(ask: Callable[[], object], plan: Plan) -> dict[str, Any]:
    """Asked once to warm up, then timed."""
    ask()
    times_ms = []
    for _ in range(plan.repeats):
        began_s = time.perf_counter()
        ask()
        times_ms.append(1000 * (time.perf_counter() - began_s))
    return {"p95_ms": round(percentile(times_ms, 95), 2), "n": plan.repeats}


def _rows(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(sa.select(sa.func.count()).select_from(request)) or 0


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
