"""Speed by requests in flight, against counting moment by moment."""

from __future__ import annotations

import random

import pytest

from agentspec.store.concurrency import Run, bands, run_of


def brute(runs: list[Run]) -> dict[int, tuple[float, float]]:
    """High end of the band -> (ms, tokens), a millisecond at a time."""
    found: dict[int, tuple[float, float]] = {}
    for ms in range(int(max(r.end_ms for r in runs))):
        here = [r for r in runs if r.start_ms <= ms < r.end_ms]
        if here:
            high = next(2**k for k in range(20) if 2**k >= len(here))
            rate = sum(r.out_tok / (r.end_ms - r.start_ms) for r in here)
            time, tokens = found.get(high, (0.0, 0.0))
            found[high] = (time + 1, tokens + rate)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_time_and_tokens_at_each_concurrency(seed: int):
    rng = random.Random(seed)
    runs = []
    for _ in range(rng.randrange(1, 40)):
        start = rng.randrange(300)
        arm = rng.choice(["on", "off", None])
        runs.append(run_of(start, rng.randrange(1, 120), rng.randrange(50), 5.0, arm))
    found = bands(runs)
    truth = brute(runs)
    told = {b.high: sum(b.busy_ms.values()) for b in found if b.busy_ms}
    assert told == {high: ms for high, (ms, _) in truth.items()}
    for band in found:
        if band.busy_ms:
            assert sum(band.tokens.values()) == pytest.approx(truth[band.high][1])
    assert sum(b.runs for b in found) == len(runs)
    assert sum(sum(b.tokens.values()) for b in found) == pytest.approx(sum(r.out_tok for r in runs))


def test_arms_stand_apart():
    runs = [
        Run(0, 100, 10, 10.0, "on"),
        Run(100, 300, 10, 20.0, "off"),
        Run(400, 500, 30, 4.0, "on"),
        Run(450, 550, 20, 40.0, "off"),
    ]
    one, two = bands(runs)
    assert (one.title, two.title) == ("1", "2")
    assert one.median_tpot_ms("on") == 7.0 and one.median_tpot_ms("off") == 20.0
    assert one.busy_ms == {"on": 150.0, "off": 250.0}
    assert one.tok_s("off") == pytest.approx(1000 * (10 + 10) / 250)
    assert two.busy_ms == {"mixed": 50.0} and two.median_tpot_ms("off") == 40.0
    assert two.all_tok_s == pytest.approx(1000 * (15 + 10) / 50)


def test_requests_that_took_no_time_are_left_out():
    assert bands([Run(5, 5, 10, None, "on")]) == []
