"""The cost curve: its shape, how it is measured, how it is kept."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agentspec.engine.cost import CostCurve, CurveKey, load, save

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


def test_a_curve_measured_beside_other_work_is_mended_point_by_point():
    loaded = CostCurve.of([1, 2, 4], [5.0, 5.0, 6.0])
    again = CostCurve.of([1, 2, 4], [1.0, 2.0, 9.0])
    assert loaded.lowered(again) == CostCurve.of([1, 2, 4], [1.0, 2.0, 6.0])
    assert loaded.lowered(loaded) == loaded
    other = CostCurve.of([1, 2], [9.0, 9.0])
    assert loaded.lowered(other) == other


class Machine:
    """A forward pass of known cost on a clock of its own: cold at first, with stutter."""

    def __init__(self, stutter: float = 0.0):
        self.now, self.passes, self.stutter = 0.0, [], stutter

    def forward(self, rows: int) -> None:
        self.passes.append(rows)
        cold = 10.0 if self.passes.count(rows) == 1 else 0.0
        slow = self.stutter if len(self.passes) % 5 == 0 else 0.0
        self.now += 0.01 + 0.001 * rows + cold + slow

    def clock(self) -> float:
        return self.now


def test_measuring_finds_the_cost_through_cold_starts_and_stutter():
    machine = Machine(stutter=0.5)
    curve = CostCurve.measure(machine.forward, limit_s=100.0, clock=machine.clock)
    assert curve.rows == (1, 2, 4, 8, 16, 32)
    assert curve.seconds_at == pytest.approx([0.01 + 0.001 * n for n in curve.rows])


def test_measuring_ends_in_time_with_every_point_known():
    machine = Machine()
    curve = CostCurve.measure(
        machine.forward, rows=(1, 2), repeats=1000, limit_s=20.5, clock=machine.clock
    )
    assert curve.seconds_at == pytest.approx([0.011, 0.012])
    assert len(machine.passes) < 100


def test_a_kept_curve_comes_back():
    curve = CostCurve.of([1, 2, 4], [0.1, 0.123456789, 0.3])
    assert load(KEY) is None
    save(curve, KEY)
    assert load(KEY) == curve
    save(CostCurve.of([1], [1.0]), KEY)
    assert load(KEY) == CostCurve.of([1], [1.0])


@pytest.mark.parametrize(
    "change",
    [
        {"weights_id": "other"},
        {"dtype": "bfloat16"},
        {"threads": 3},
        {"cpu_model": "other"},
        {"version": "0.0.0"},
    ],
)
def test_a_curve_is_true_for_its_key_only(change: dict):
    save(CostCurve.of([1, 2], [1.0, 2.0]), KEY)
    assert load(replace(KEY, **change)) is None


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '{"key": {}}', '{"rows": [2, 1], "seconds": [1, 2]}']
)
def test_a_damaged_file_is_no_curve(content: str):
    save(CostCurve.of([1, 2], [1.0, 2.0]), KEY)
    KEY.path.write_text(content)
    assert load(KEY) is None


def test_a_kept_curve_that_falls_is_no_curve():
    save(CostCurve.of([1, 2], [1.0, 2.0]), KEY)
    KEY.path.write_text(KEY.path.read_text().replace("1.0", "3.0"))
    assert load(KEY) is None
