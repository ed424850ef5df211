"""The cost curve: its shape, how it is measured, how it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentspec.engine.cost import (
    ATTEND_ROWS,
    ROWS,
    CostCurve,
    CurveKey,
    Measured,
    Profile,
    interpolate,
    load,
    measure,
    save,
)

KEY = CurveKey.here("weights", "int8", threads=2)


@pytest.fixture(autouse=True)
def _cache_of_its_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_between_the_points_and_beyond_them():
    curve = CostCurve.of([2, 4, 8], [1.0, 2.0, 3.0])
    assert [curve.seconds(n) for n in (1, 2, 3, 4, 6, 8)] == [1.0, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert curve.seconds(12) == pytest.approx(4.0)
    assert CostCurve.of([4], [2.0]).seconds(8) == pytest.approx(4.0)


def test_more_rows_never_cost_less():
    curve = CostCurve.of([1, 2, 4, 8], [1.0, 3.0, 2.0, 5.0])
    assert curve.seconds_at == (1.0, 3.0, 3.0, 5.0)


def test_what_was_measured_beside_other_work_is_mended_point_by_point():
    loaded = measured(5.0, 5.0, 6.0)
    again = measured(1.0, 2.0, 9.0)
    assert loaded.lowered(again) == measured(1.0, 2.0, 6.0)
    assert loaded.lowered(loaded) == loaded
    other = Measured(Profile(64, (1, 2), (9.0, 9.0)), loaded.long)
    assert loaded.lowered(other) == other


def measured(*seconds: float) -> Measured:
    rows = (1, 2, 4)[: len(seconds)]
    return Measured(Profile(64, rows, seconds), Profile(4096, (1, 8), (7.0, 7.123456789)))


class Machine:
    """A forward pass of known cost on a clock of its own: cold at first, with stutter.

    Attention costs as much a context token for one row as for two, and more for eight.
    """

    ATTEND = {1: 1e-6, 2: 1e-6, 4: 1.5e-6, 8: 3e-6, 16: 6e-6}

    def __init__(self, stutter: float = 0.0):
        self.now, self.passes, self.stutter = 0.0, [], stutter

    def base(self, rows: int) -> float:
        return 0.01 + 0.001 * rows

    def attend(self, rows: int) -> float:
        known = sorted(self.ATTEND)
        return float(interpolate(known, [self.ATTEND[n] for n in known], rows))

    def forward(self, rows: int, context: int) -> None:
        self.passes.append((rows, context))
        cold = 10.0 if self.passes.count((rows, context)) == 1 else 0.0
        slow = self.stutter if len(self.passes) % 5 == 0 else 0.0
        self.now += self.base(rows) + self.attend(rows) * context + cold + slow

    def clock(self) -> float:
        return self.now


def test_measuring_finds_the_cost_through_cold_starts_and_stutter():
    machine = Machine(stutter=0.5)
    curve = measure(machine.forward, limit_s=1000.0, clock=machine.clock).curve
    assert curve.rows == ROWS and curve.attend_rows == ATTEND_ROWS
    assert curve.seconds_at == pytest.approx([machine.base(n) for n in ROWS])
    assert curve.attend_at == pytest.approx([machine.ATTEND[n] for n in ATTEND_ROWS])


def test_measuring_ends_in_time_with_every_point_known():
    machine = Machine()
    found = measure(machine.forward, rows=(1, 2), repeats=1000, limit_s=40.5, clock=machine.clock)
    curve = found.curve
    assert curve.seconds_at == pytest.approx([0.011, 0.012])
    assert len(machine.passes) < 100


def test_a_clock_that_says_longer_contexts_are_faster_gives_a_curve_all_the_same():
    fast = Profile(4096, (1, 2), (0.5, 0.5))
    curve = Measured(Profile(64, (1, 2), (1.0, 0.9)), fast).curve
    assert curve.attend_at == (0.0, 0.0)
    assert curve.seconds_at == (1.0, 1.0)


def test_a_kept_curve_comes_back():
    curve = measured(0.1, 0.123456789, 0.3)
    assert load(KEY) is None
    save(curve, KEY)
    assert load(KEY) == curve
    save(measured(1.0), KEY)
    assert load(KEY) == measured(1.0)


@pytest.mark.parametrize(
    "change",
    [
        {"weights_id": "other"},
        {"dtype": "bfloat16"},
        {"threads": 3},
        {"cpu_model": "other"},
        {"version": "0.0.0"},
        {"format": 1},
    ],
)
def test_a_curve_is_true_for_its_key_only(change: dict):
    save(measured(1.0, 2.0), KEY)
    assert load(replace(KEY, **change)) is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"key": {}}', '{"rows": [2, 1], "seconds": [1, 2]}']
)
def test_a_damaged_file_is_no_curve(content: str):
    save(measured(1.0, 2.0), KEY)
    KEY.path.write_text(content)
    assert load(KEY) is None


def test_what_cannot_have_been_measured_is_not_taken():
    save(measured(1.0, 2.0), KEY)
    KEY.path.write_text(KEY.path.read_text().replace("1.0", "-1.0"))
    assert load(KEY) is None


def test_what_each_sequence_adds_is_told_from_what_rows_cost():
    """Sixteen sequences of a row each take longer than sixteen rows of one."""
    machine = Machine(stutter=0.5)

    def apart(spans: int, context: int) -> None:
        machine.forward(spans, context)
        alone, together = spans * machine.attend(1), machine.attend(spans)
        machine.now += 2e-4 * (spans - 1) + (alone - together) * context

    measured = measure(machine.forward, apart, limit_s=1000.0, clock=machine.clock)
    curve = measured.curve
    assert curve.span_s == pytest.approx(2e-4, rel=1e-6)
    assert [curve.seconds(n) + curve.span_s for n in ROWS] == pytest.approx(
        [machine.base(n) for n in ROWS]
    )
    save(measured, KEY)
    assert load(KEY) == measured
    assert measure(machine.forward, limit_s=1000.0, clock=machine.clock).curve.span_s == 0.0


def test_sequences_never_take_the_whole_of_a_pass():
    """A slow second while sixteen were measured."""
    found = Measured(
        Profile(0, (1, 16), (1.0, 2.0)), Profile(9, (1,), (1.0,)), Profile(0, (16,), (99.0,))
    )
    assert found.curve.seconds(1) == found.curve.span_s == 0.5
    assert found.lowered(replace(found, apart=Profile(0, (16,), (5.0,)))).curve.span_s == 0.2
