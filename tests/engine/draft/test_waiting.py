"""Rows of features that wait: nothing is lost, doubled or out of order, however passes were cut."""

from __future__ import annotations

import random

import torch

from agentspec.engine.draft.base import DraftView, Observed
from agentspec.engine.draft.waiting import MOST_ROWS, Waiting
from agentspec.engine.sampling import SamplingParams


def view(number: int, pages: int = 2000) -> DraftView:
    return DraftView(
        sequence_id=number,
        cache_scope="",
        session=None,
        tokens=[],
        prompt_length=0,
        sampling=SamplingParams(),
        pages=list(range(pages)),
    )


def rows(start: int, count: int) -> torch.Tensor:
    """The feature of position p is p."""
    return torch.arange(start, start + count, dtype=torch.float32)[:, None]


def test_every_row_comes_once_and_in_order():
    draw = random.Random(4)
    waiting, views = Waiting(), [view(n) for n in range(3)]
    at, came = [0, 0, 0], {n: [] for n in range(3)}
    for _ in range(300):
        shown = []
        for n in draw.sample(range(3), draw.randint(1, 3)):
            count = draw.choice([1, 1, 1, 4, 30])
            shown.append(Observed(views[n], at[n], rows(at[n], count)))
            at[n] += count
        due = waiting.take(shown)
        if draw.random() < 0.1:
            due += waiting.due([draw.randrange(3)])
        for one in due:
            assert one.features[:, 0].tolist() == list(range(one.start, one.end))
            came[one.view.sequence_id] += range(one.start, one.end)
    for n in range(3):
        for one in waiting.closing(views[n]):
            came[n] += range(one.start, one.end)
        assert came[n] == list(range(at[n]))
        assert waiting.closing(views[n]) == []


def test_few_rows_wait_and_what_waits_is_a_copy():
    waiting, mine, buffer = Waiting(), view(1), rows(0, 1)
    for start in range(MOST_ROWS - 1):
        buffer[:] = start
        assert waiting.take([Observed(mine, start, buffer)]) == []
    buffer[:] = MOST_ROWS - 1
    (due,) = waiting.take([Observed(mine, MOST_ROWS - 1, buffer)])
    assert due.features[:, 0].tolist() == list(range(MOST_ROWS))


def test_a_gap_ends_what_waits():
    waiting, mine = Waiting(), view(1)
    assert waiting.take([Observed(mine, 0, rows(0, 2))]) == []
    (due,) = waiting.take([Observed(mine, 5, rows(5, 1))])
    assert (due.start, due.end) == (0, 2)
    (due,) = waiting.due([1])
    assert (due.start, due.end) == (5, 6)


def test_nothing_is_written_where_the_pages_are_gone():
    waiting, gone = Waiting(), view(1, pages=0)
    assert waiting.take([Observed(gone, 3, rows(3, 2))]) == []
    assert waiting.closing(gone) == []
