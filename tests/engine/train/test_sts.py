"""Sequential Temperature Scaling on data whose temperatures are known."""

from __future__ import annotations

import pytest
import torch

from agentspec.engine.train.sts import GRID, ece, fit


def world(temperatures: list[float], n: int = 60_000, seed: int = 0):
    """Logits T_k times too large or small, and outcomes drawn with the true chances."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.randn(n, len(temperatures), generator=draw, dtype=torch.float64) * 1.5 + 0.7
    accepted = (torch.rand(true.shape, generator=draw) < true.sigmoid()).double()
    valid = torch.ones_like(accepted).bool()
    return true * torch.tensor(temperatures), accepted, valid


def test_known_temperatures_are_found_and_the_error_falls():
    truth = [GRID[64], GRID[32], GRID[56]]  # 2, 1/2, 1.41
    fitted = fit(*world(truth))
    for found, true in zip(fitted.temperatures, truth, strict=True):
        assert true / 1.25 < found < true * 1.25
    assert all(after <= before for after, before in zip(fitted.after, fitted.before, strict=True))
    assert fitted.before[0] > 0.03 and max(fitted.after) < 0.01
    assert fitted.n == [60_000] * 3


def test_what_is_calibrated_stays():
    fitted = fit(*world([1.0, 1.0]))
    assert all(0.8 < t < 1.25 for t in fitted.temperatures)


def test_places_without_observations_keep_the_temperature_before():
    logits, accepted, valid = world([2.0, 1.0], n=5000)
    valid[:, 1] = False
    fitted = fit(logits, accepted, valid)
    assert fitted.n[1] == 0 and fitted.temperatures[1] == fitted.temperatures[0]


def test_calibration_error_by_hand():
    predicted = torch.tensor([0.9, 0.9, 0.1, 0.1])
    observed = torch.tensor([1.0, 0.0, 0.0, 0.0])
    assert ece(predicted, observed) == pytest.approx((2 * 0.4 + 2 * 0.1) / 4)
    assert ece(torch.tensor([]), torch.tensor([])) == 0
    assert ece(torch.tensor([1.0]), torch.tensor([1.0])) == 0
