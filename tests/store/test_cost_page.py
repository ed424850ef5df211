"""docs/cost.md against the code and against plain arithmetic."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import pytest

from agentspec.settings import PoolSettings
from agentspec.store import published
from agentspec.store.cost import nusd_per_m
from agentspec.store.money import half_even
from agentspec.store.pool import nusd_per_m_at
from agentspec.store.provision import bill
from agentspec.store.usage import Usage
from agentspec.store.window import Window

PAGE = (Path(__file__).parents[2] / "docs/cost.md").read_text()
EIGHT = PoolSettings(gpus=8, gpu_usd_per_h=2.5)


def table(heading: str) -> dict[str, list[str]]:
    """Rows of the table whose head begins so, by their first cell."""
    block = PAGE[PAGE.index(heading) :].split("\n\n")[0].splitlines()[2:]
    rows = [[cell.strip(" *") for cell in line.strip("|").split("|")] for line in block]
    return {cells[0]: cells[1:] for cells in rows}


def dollars(value: Fraction) -> str:
    return f"${float(value):,.2f}"


@pytest.mark.parametrize("column, tok_s", [(0, 90), (1, 383)])
def test_the_published_example_step_by_step(column: int, tok_s: int):
    rows = table("| | without speculation")
    seconds = Fraction(10**6, tok_s)
    gpu_seconds = 8 * seconds
    right = gpu_seconds / 3600 * Fraction(5, 2)
    wrong = seconds / 8 / 3600 * Fraction(5, 2)
    expected = {
        "tokens a second, one stream": str(tok_s),
        "seconds for a million tokens": f"{round(seconds):,}",
        "GPU-seconds: times 8": f"{round(gpu_seconds):,}",
        "at $2.50 an hour for a GPU": dollars(right),
        "divided by 8 instead of multiplied": dollars(wrong),
    }
    assert {name: cells[column] for name, cells in rows.items()} == expected
    assert right / wrong == 64
    assert nusd_per_m_at(EIGHT, tok_s) == right * 10**9


def test_the_example_is_61_73_and_14_51():
    assert half_even(nusd_per_m_at(EIGHT, 90)) == 61_728_395_062
    assert half_even(nusd_per_m_at(EIGHT, 383)) == 14_505_366_986


@pytest.mark.parametrize("tok_s, expected", [(90, 61_728_395_062), (383, 14_505_366_986)])
def test_a_bill_of_that_machine_says_the_same(tok_s: int, expected: int):
    """An hour of one stream, measured rather than divided: the report's own path."""
    hour = Usage(requests=1, in_tok=100, out_tok=tok_s * 3600, busy_decode_us=3600 * 10**6)
    found = bill(EIGHT, Window(0, 3_600_000), hour)
    assert found.total_nusd == 20 * 10**9 and found.utilisation == 1
    per = found.per_million_out()
    assert per is not None and half_even(per) == expected


def test_speeds_for_the_published_prices():
    told = re.search(r"for \$0\.96 .*?give ([\d,]+) tokens.*?\$0\.257, ([\d,]+)\.", PAGE, re.S)
    assert told is not None
    rate = Fraction(20) / 3600 * 10**6
    naive = [f"{round(rate / Fraction(usd)):,}" for usd in ("0.96", "0.257")]
    assert list(told.groups()) == naive


def test_73_per_cent():
    saved = 1 - Fraction(90, 383)
    assert f"{float(saved):.1%}" == "76.5%" and "76.5 %" in PAGE
    assert f"{float(1 - Fraction(90, 383) * Fraction(113, 100)):.1%}" == "73.4%"
    for gpus, usd in ((8, 2.5), (1, 4.0)):
        pool = PoolSettings(gpus=gpus, gpu_usd_per_h=usd)
        assert 1 - nusd_per_m_at(pool, 383) / nusd_per_m_at(pool, 90) == saved


def test_the_speed_up_of_a_round():
    assert f"{2.73 / (1.25 + 0.143):.2f}" == "1.96" and "that is 1.96" in PAGE


def test_the_prices_entered_by_hand():
    rows = table("| model | in |")
    expected = published.prices()
    assert rows.keys() == expected.keys()
    for model, cells in rows.items():
        (price,) = expected[model]
        kept = [price.in_nusd_per_m, price.cached_nusd_per_m, price.out_nusd_per_m]
        assert kept == [None if cell == "-" else nusd_per_m(cell) for cell in cells], model


def test_the_settings_on_the_page_are_settings(tmp_path: Path):
    from agentspec.settings import load

    block = re.search(r"```toml\n(.*?)```", PAGE, re.S)
    assert block is not None
    file = tmp_path / "serve.toml"
    file.write_text('[backends.engine]\nkind = "engine"\n' + block.group(1))
    pool = load(file).backends["engine"].pool
    assert pool is not None and (pool.gpus, pool.gpu_usd_per_h, pool.overhead) == (8, 2.5, 1.15)
    assert pool.from_time is not None and pool.from_time.year == 2026
