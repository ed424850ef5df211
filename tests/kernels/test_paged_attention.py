"""paged_attention against a loop that knows no pages: one query, one head at a time."""

from __future__ import annotations

import math
import random

import pytest
import torch
from agentspec_kernels.kv_move import kv_append
from agentspec_kernels.paged_attention import PagedLayout, paged_attention
from hypothesis import given, settings
from hypothesis import strategies as st

TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}
PAGE = 4
HEADS, KV_HEADS, SIZE = 6, 2, 8


def naive(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int, window: int
) -> list:
    """[n, H, D], [C, J, D] twice -> nested lists [n][H][D]; row i sees positions 0 .. start + i,
    the last ``window`` of them."""
    group = query.shape[1] // keys.shape[1]
    out = []
    for i, token in enumerate(query.tolist()):
        heads = []
        for h, q in enumerate(token):
            seen = slice(max(0, start + i + 1 - window), start + i + 1)
            k = keys[seen, h // group].tolist()
            v = values[seen, h // group].tolist()
            weights = [
                math.exp(sum(a * b for a, b in zip(q, row, strict=True)) / math.sqrt(len(q)))
                for row in k
            ]
            total = sum(weights)
            mix = [
                sum(w * row[d] for w, row in zip(weights, v, strict=True)) / total
                for d in range(len(q))
            ]
            heads.append(mix)
        out.append(heads)
    return out


def scene(
    spans: list[tuple[int, int]],
    dtype: torch.dtype,
    seed: int,
    scatter: bool,
    window: int = 10**6,
):
    """Random sequences (start, rows) laid out in a pool whose unused slots hold NaN."""
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)

    def rand(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    sizes = [-(-(start + rows) // PAGE) + 1 for start, rows in spans]
    pool = list(range(sum(sizes) + 3))
    if scatter:
        rng.shuffle(pool)
    caches = [torch.full((len(pool), PAGE, KV_HEADS, SIZE), math.nan, dtype=dtype) for _ in "kv"]
    tables, queries, histories = [], [], []
    for (start, rows), size in zip(spans, sizes, strict=True):
        tables.append([pool.pop() if scatter else pool.pop(0) for _ in range(size)])
        histories.append((rand(start + rows, KV_HEADS, SIZE), rand(start + rows, KV_HEADS, SIZE)))
        queries.append(rand(rows, HEADS, SIZE))
        for cache, rows_of in zip(caches, histories[-1], strict=True):
            for position in range(start):
                cache[tables[-1][position // PAGE], position % PAGE] = rows_of[position]
    starts, counts = [s for s, _ in spans], [n for _, n in spans]
    layout = PagedLayout.build(starts, counts, tables, page_tokens=PAGE)
    new = [
        torch.cat([h[which][start:] for h, (start, _) in zip(histories, spans, strict=True)])
        for which in (0, 1)
    ]
    kv_append(*caches, *new, layout.slots)
    truth = [
        row
        for query, (keys, values), start in zip(queries, histories, starts, strict=True)
        for row in naive(query, keys, values, start, window)
    ]
    return torch.cat(queries), caches, layout, torch.tensor(truth, dtype=torch.float64)


@pytest.mark.parametrize("backend", ("reference", "torch"))
@pytest.mark.parametrize("dtype", tuple(TOLERANCE))
@pytest.mark.parametrize("scatter", (False, True))
@pytest.mark.parametrize(
    "spans",
    (
        [(0, 1)],
        [(9, 1)],
        [(0, 5)],
        [(3, 2)],
        [(7, 4)],
        [(4, 1), (0, 3), (8, 9), (15, 1)],
        [(0, 33), (6, 35)],
    ),
)
def test_equals_a_naive_loop(
    backend: str, dtype: torch.dtype, scatter: bool, spans: list[tuple[int, int]]
) -> None:
    query, (keys, values), layout, truth = scene(spans, dtype, 3, scatter)
    found = paged_attention(query, keys, values, layout, backend=backend)
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), truth, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 6)), min_size=1, max_size=4),
    st.integers(0, 99),
)
def test_any_packing_equals_a_naive_loop(spans: list[tuple[int, int]], seed: int) -> None:
    query, (keys, values), layout, truth = scene(spans, torch.float64, seed, scatter=True)
    for backend in ("reference", "torch"):
        found = paged_attention(query, keys, values, layout, backend=backend)
        torch.testing.assert_close(found, truth, rtol=1e-11, atol=1e-11)


@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(1, 40)), min_size=1, max_size=3),
    st.integers(1, 12),
    st.integers(0, 99),
)
@settings(max_examples=20)
def test_a_window_equals_a_naive_loop(spans: list[tuple[int, int]], window: int, seed: int) -> None:
    query, (keys, values), layout, truth = scene(spans, torch.float64, seed, True, window)
    for backend in ("reference", "torch"):
        found = paged_attention(query, keys, values, layout, window=window, backend=backend)
        torch.testing.assert_close(found, truth, rtol=1e-11, atol=1e-11)


def test_scale_is_taken() -> None:
    query, (keys, values), layout, _ = scene([(5, 3)], torch.float64, 1, scatter=True)
    doubled = paged_attention(query * 2, keys, values, layout, scale=0.25)
    plain = paged_attention(query, keys, values, layout, scale=0.5)
    torch.testing.assert_close(doubled, plain)


def test_new_rows_are_written_to_the_layouts_slots_only() -> None:
    cache, other = torch.zeros(2, 3, PAGE, 1, 1)
    layout = PagedLayout.build([3], [2], [[2, 0]], page_tokens=PAGE)
    rows = torch.tensor([[[7.0]], [[8.0]]])
    kv_append(cache, other, rows, -rows, layout.slots)
    assert torch.equal(other, -cache)
    assert {tuple(i): cache[tuple(i)].item() for i in cache.nonzero().tolist()} == {
        (2, 3, 0, 0): 7.0,
        (0, 0, 0, 0): 8.0,
    }


def test_a_page_table_that_is_too_short_is_a_bug() -> None:
    with pytest.raises(AssertionError):
        PagedLayout.build([0], [PAGE + 1], [[0]], page_tokens=PAGE)
