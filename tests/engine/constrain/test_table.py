"""The keyword table of docs/constraints.md is what the code does, and what it says is true."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from agentspec.engine.constrain.table import PROBES, page, treatment
from agentspec.toolcall.check import ValueChecker

from .conftest import answer_spec
from .random_schemas import walked

_PAGE = Path(__file__).parents[3] / "docs" / "constraints.md"


def test_the_page_holds_the_table_that_the_code_gives():
    text = _PAGE.read_text()
    assert page(text) == text


@pytest.mark.parametrize("name", [n for n, s in PROBES.items() if treatment(s) != "refused"])
def test_what_is_masked_or_checked_ends_right(small, factories, name):
    schema = PROBES[name]
    compiled = factories().compile(answer_spec(schema))
    assert compiled.proven
    assert bool(compiled.unchecked) == (treatment(schema) == "checked")
    for seed in range(2):
        text, _ = walked(small, compiled.session(), random.Random(seed), 3 + 9 * seed)
        assert text is not None and ValueChecker(schema).check(text) is None, text
