"""Lengths of modules and functions, as the house rules set them."""

from __future__ import annotations

import statistics

from tests.house.source import ROOT, functions, modules

MODULE_MEDIAN, MODULE_MOST = 120, 400
FUNCTION_P90, FUNCTION_MOST, KERNEL_MOST = 30, 60, 120


def test_no_module_is_long():
    tests = [(p.relative_to(ROOT).as_posix(), p) for p in (ROOT / "tests").rglob("*.py")]
    lengths = {m.path: m.lines for m in modules()}
    lengths |= {name: path.read_text().count("\n") for name, path in tests}
    assert {path: n for path, n in lengths.items() if n > MODULE_MOST} == {}


def test_half_of_the_modules_are_short():
    assert statistics.median(m.lines for m in modules() if m.lines) < MODULE_MEDIAN


def test_no_function_is_long():
    long = {}
    for module in modules():
        most = KERNEL_MOST if module.room == "agentspec_kernels" else FUNCTION_MOST
        for name, lines in functions(module):
            if lines > most:
                long[f"{module.path}:{name}"] = lines
    assert long == {}


def test_nine_functions_in_ten_are_short():
    lengths = [lines for module in modules() for _, lines in functions(module)]
    assert statistics.quantiles(lengths, n=10)[-1] < FUNCTION_P90
