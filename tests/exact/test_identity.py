"""One text, whatever ran beside it: speculation, batch, chunks, prefixes, preemption, abort.

The whole suite is ``make test-exact``; a part of it runs with all tests.
"""

from __future__ import annotations

import itertools
import logging

import pytest

from tests.exact.conftest import ISAS
from tests.exact.cover import Cover, pairs
from tests.exact.identity import FACTORS, WATCHED, design, run
from tests.exact.world import World, bodies

pytestmark = pytest.mark.model
# Chat, code, an edit, a call, schemas, a letter with a biased vocabulary.
FEW = (0, 9, 20, 34, 38, 41, 44, 49)


def test_the_design_covers_what_it_says():
    cover = Cover(FACTORS, WATCHED)
    for _ in range(50):
        seen = set().union(*(pairs(row) for row in cover.rows()))
        for a, b in itertools.combinations(sorted(FACTORS), 2):
            for x, y in itertools.product(FACTORS[a], FACTORS[b]):
                assert ((a, x), (b, y)) in seen
    cells = itertools.product(*(FACTORS[name] for name in WATCHED))
    assert all(cover.met[cell] for cell in cells)
    assert len(bodies()) == 50


def check(world: World, prompts) -> None:
    figures = run(world, design(prompts))
    assert figures.differing == []
    # It looked: drafts were taken and refused, prefixes found, sequences preempted and given up.
    assert 0 < figures.accepted < figures.drafted
    assert figures.hits and figures.preemptions and figures.aborted
    logging.getLogger(__name__).info("%s", figures)


def test_eight_prompts(make_world):
    check(make_world(ISAS[0], 12), FEW)


@pytest.mark.exact
@pytest.mark.parametrize("isa", ISAS)
def test_on_every_instruction_set(make_world, isa: str):
    """All 50 prompts; the portable path, ten times slower, has the few of them."""
    if isa == "portable":
        check(make_world(isa, 12), FEW)
    else:
        check(make_world(isa, 32 if isa == ISAS[0] else 16), range(50))
