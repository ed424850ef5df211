"""What speculation saves: against resampling, known effects, and who may be compared with whom."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from agentspec.store import migrate
from agentspec.store.database import connect
from agentspec.store.record import RequestRecord
from agentspec.store.savings import Savings, arm, log_ratio, savings, t_quantile
from agentspec.store.window import Window
from tests.store.ledger import insert

W_MS = 30_000
START_MS = 1_800_000_000_000 - 1_800_000_000_000 % W_MS
ALL = Window(START_MS, START_MS + 10**9)


def row(number: int, window: int, arm: str, **fields: Any) -> RequestRecord:
    """A request of 100 tokens that spent 2 ms a token, in the middle of its window."""
    fields = {
        "backend": "own",
        "spec_window": arm,
        "out_tok": 100,
        "busy_prefill_us": 999_999,
        "busy_decode_us": 150_000,
        "busy_draft_us": 40_000,
        "busy_grammar_us": 10_000,
        "e2e_ms": 1000.0,
        **fields,
    }
    ts_ms = START_MS + window * W_MS + 10_000
    return RequestRecord(id=f"r{number:06d}", **{"ts_ms": ts_ms, **fields})


def traffic(seed: int, on_us: float, off_us: float, windows: int = 40) -> list[RequestRecord]:
    """Requests of noisy cost a token, in the ratio of their arm; one window in four is off."""
    rng = random.Random(seed)
    made = []
    for window in range(windows):
        name = "off" if window % 4 == 0 else "on"
        level = (off_us if name == "off" else on_us) * rng.uniform(0.8, 1.2)
        for _ in range(rng.randrange(1, 9)):
            tokens = rng.randrange(10, 400)
            us = round(tokens * level * rng.uniform(0.9, 1.1))
            made.append(
                row(len(made), window, name, out_tok=tokens, busy_decode_us=us, busy_draft_us=0)
            )
    return made


@pytest.fixture
def file(tmp_path: Path) -> Iterator[tuple[str, Engine]]:
    """An empty ledger on SQLite, for what does not depend on the database: its URL and itself."""
    url = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(url)
    engine = connect(url)
    yield url, engine
    engine.dispose()


def ask(engine: Engine, rate: Fraction | None = Fraction(1)) -> Savings:
    with engine.connect() as connection:
        return savings(connection, ALL, {"own": rate}, W_MS)["own"]


def test_a_known_saving(engine: Engine, url: str):
    rows = [row(n, n, "on") for n in range(4)]
    rows += [row(10 + n, 10 + n, "off", busy_decode_us=490_000, busy_draft_us=0) for n in range(3)]
    insert(url, rows)
    found = ask(engine, Fraction(5, 9))
    assert found.on is not None and found.off is not None
    assert (found.on.windows, found.on.us, found.on.ratio) == (4, 800_000, 2000)
    assert (found.off.windows, found.off.us, found.off.ratio) == (3, 1_500_000, 5000)
    assert found.share == pytest.approx(0.6) and found.low == found.high == found.share
    # at 5 ms a token the 400 tokens would have taken 2,000,000 us instead of 800,000
    assert found.saved_nusd == found.low_nusd == round(Fraction(1_200_000 * 5, 9))


def test_backends_are_told_apart_in_one_look(file: tuple[str, Engine]):
    url, engine = file
    slow = {"backend": "other", "busy_decode_us": 490_000, "busy_draft_us": 0}
    rows = traffic(1, 2000, 4000)
    more = [row(9000 + n, n, "on" if n % 2 else "off", **slow) for n in range(8)]
    gone = [row(9100, 0, "on", backend="third")]
    insert(url, [*rows, *more, *gone])
    prices = {"other": None, "own": Fraction(1), "third": Fraction(1), "fourth": Fraction(1)}
    with engine.connect() as connection:
        together = savings(connection, ALL, prices, W_MS)
        alone = {n: savings(connection, ALL, {n: p}, W_MS)[n] for n, p in prices.items()}
    assert together == alone and list(together) == list(prices)
    assert together["own"].share == pytest.approx(0.5, abs=0.1)
    assert (together["other"].share, together["other"].saved_nusd) == (0, None)
    assert together["third"].unknown and together["fourth"].unknown


def test_a_loss_is_shown_as_one(file: tuple[str, Engine]):
    url, engine = file
    insert(url, traffic(1, on_us=3000, off_us=2000))
    found = ask(engine)
    assert found.share is not None and found.low is not None and found.high is not None
    assert found.low < found.share < found.high < 0
    assert found.saved_nusd is not None and found.high_nusd is not None
    assert found.low_nusd is not None and found.low_nusd < found.saved_nusd < found.high_nusd < 0


def test_the_interval_is_that_of_resampled_windows(file: tuple[str, Engine]):
    url, engine = file
    rows = traffic(2, on_us=1000, off_us=2500, windows=160)
    insert(url, rows)
    found = ask(engine)
    assert found.low is not None and found.high is not None and found.share is not None
    clusters: dict[str, dict[int, list[int]]] = {"on": {}, "off": {}}
    for r in rows:
        cluster = clusters[r.spec_window or ""].setdefault((r.ts_ms - START_MS) // W_MS, [0, 0])
        cluster[0] += r.out_tok
        cluster[1] += r.busy_decode_us + r.busy_draft_us + r.busy_grammar_us
    rng = random.Random(3)

    def resampled(name: str) -> float:
        drawn = rng.choices(list(clusters[name].values()), k=len(clusters[name]))
        return sum(us for _, us in drawn) / sum(tokens for tokens, _ in drawn)

    logs = [math.log(resampled("on") / resampled("off")) for _ in range(4000)]
    reach = (math.log(1 - found.low) - math.log(1 - found.high)) / 2
    # Student's t at some 60 degrees of freedom is 2.00 standard errors
    assert reach / 2.0 == pytest.approx(statistics.stdev(logs), rel=0.1)
    assert math.log(1 - found.share) == pytest.approx(statistics.mean(logs), abs=0.01)


def test_the_interval_holds_the_truth_19_times_in_20():
    inside = 0
    for seed in range(400):
        rng = random.Random(seed)
        arms = []
        for level, windows in ((1000, 60), (2500, 8)):
            clusters = []
            for _ in range(windows):
                tokens = rng.randrange(100, 2000)
                clusters.append((1, tokens, round(tokens * level * rng.lognormvariate(0, 0.2))))
            arms.append(arm(clusters))
        on, off = arms
        log, reach = log_ratio(on, off)
        inside += abs(log - math.log(1000 / 2500)) <= reach
    assert 365 <= inside <= 395  # 380 expected, 3.4 standard deviations


@pytest.mark.parametrize(
    "unfit",
    [
        {"spec_window": "mixed"},
        {"spec_window": None},
        {"e2e_ms": 20_000.0},  # ends in the next window
        {"e2e_ms": None},
        {"status": "error"},
        {"status": "cancelled"},
        {"spec_arm": "control"},
        {"spec_arm": "off"},
        {"backend": "other"},
        {"out_tok": 0},
        {"ts_ms": ALL.until_ms},
    ],
    ids=str,
)
def test_who_is_not_compared(unfit: dict[str, Any], file: tuple[str, Engine]):
    url, engine = file
    good = [row(n, n, "on" if n % 2 else "off") for n in range(6)]
    insert(url, [*good, row(99, 1, "on", **{"busy_decode_us": 10**9, **unfit})])
    found = ask(engine)
    assert found.share == 0.0 and found.on is not None and found.on.requests == 3


def test_too_few_windows_are_said_to_be_too_few(engine: Engine, url: str):
    assert ask(engine).unknown == "too few windows with requests: on, off"
    insert(url, [row(n, n, "on") for n in range(5)] + [row(9, 9, "off")])
    found = ask(engine)
    assert found.unknown == "too few windows with requests: off"
    assert found.share is found.low is found.saved_nusd is None


def test_without_a_price_there_is_a_share_but_no_money(file: tuple[str, Engine]):
    url, engine = file
    insert(url, traffic(4, on_us=1000, off_us=2000))
    found = ask(engine, None)
    assert found.share is not None and found.saved_nusd is None


def test_the_same_rows_give_the_same_interval(file: tuple[str, Engine]):
    url, engine = file
    insert(url, traffic(5, on_us=1000, off_us=2000))
    assert ask(engine) == ask(engine)


@pytest.mark.parametrize(
    "freedom, quantile",  # from the printed tables
    [(1, 12.706), (2.9, 4.303), (10, 2.228), (11, 2.201), (20, 2.086), (60, 2.000), (1e9, 1.960)],
)
def test_students_t(freedom: float, quantile: float):
    assert t_quantile(freedom) == pytest.approx(quantile, abs=0.001)
