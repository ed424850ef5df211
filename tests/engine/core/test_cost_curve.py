"""The cost curve over an engine's starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentspec.engine import build
from agentspec.engine.cost import CostCurve, Measured, Profile
from agentspec.settings import EngineSettings


class Fake:
    """What ``cost_curve`` looks at of a runner; it measures nothing."""

    kind, threads = "fake", 2


def test_each_start_lowers_what_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    weights = tmp_path / "weights.gguf"
    weights.write_bytes(b"")
    measured: list[tuple[int, bool]] = []

    def start(*seconds: float, exact: bool = False) -> CostCurve:
        def measure(_runner: object, repeats: int = 8, *, warm: bool = True) -> Measured:
            measured.append((repeats, warm))
            return Measured(Profile(0, (1, 8), seconds), Profile(100, (1, 8), (9.0, 9.0)))

        monkeypatch.setattr(build, "measure", measure)
        settings = EngineSettings(exact=exact)
        return build.cost_curve(Fake(), weights, settings)  # pyright: ignore[reportArgumentType]

    assert start(4.0, 9.0).seconds_at == (4.0, 9.0)
    assert start(2.0, 10.0).seconds_at == (2.0, 9.0)
    assert start(3.0, 6.0).seconds_at == (2.0, 6.0)
    assert start(7.0, 7.0).seconds_at == (2.0, 6.0)
    assert measured == [(8, True), (1, False), (1, False), (1, False)]
    # Exact sums take longer: their curve is another one.
    assert start(20.0, 30.0, exact=True).seconds_at == (20.0, 30.0)
    assert start(7.0, 7.0).seconds_at == (2.0, 6.0)
