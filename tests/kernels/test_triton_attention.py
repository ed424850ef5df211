"""The Triton attention against its definition; a row's bits alone, in a batch, in a tree."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from agentspec_kernels.draft_block_attention import draft_block_attention
from agentspec_kernels.paged_attention import PagedLayout, kernel, paged_attention

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}
PAGE, SPLIT, BLOCK = 4, 32, 16
TREE = (-1, 0, 1, 1, 0, 4, 3)
pytestmark = pytest.mark.usefixtures("poisoned")


@dataclass(frozen=True, slots=True)
class Span:
    """start: positions in the cache before ``count`` rows; before: of a tree."""

    start: int
    count: int
    before: tuple[int, ...] | None = None


class Scene:
    """Spans with random q, k, v over a pool whose other slots hold NaN."""

    def __init__(self, spans: Sequence[Span], sizes: tuple[int, int, int], dtype: torch.dtype):
        self.heads, self.kv_heads, self.size = sizes
        self.spans, self.dtype = spans, dtype
        generator = torch.Generator().manual_seed(len(spans) + sum(sizes))

        def rand(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=generator).to(dtype)

        needs = [-(-(span.start + span.count) // PAGE) for span in spans]
        pool = list(range(sum(needs) + 2))
        random.Random(1).shuffle(pool)
        self.tables = [[pool.pop() for _ in range(need)] for need in needs]
        shape = (sum(needs) + 2, PAGE, self.kv_heads, self.size)
        self.key, self.value = (torch.full(shape, torch.nan, dtype=dtype) for _ in "kv")
        for cache in (self.key, self.value):
            for span, table in zip(spans, self.tables, strict=True):
                for at in range(span.start + span.count):
                    cache[table[at // PAGE], at % PAGE] = rand(self.kv_heads, self.size)
        self.query = [rand(span.count, self.heads, self.size) for span in spans]

    def run(
        self, chosen: Sequence[int], backend: str = "kernel", window: int | None = None
    ) -> list[torch.Tensor]:
        """The outputs of some spans, packed together."""
        layout = PagedLayout.build(
            [self.spans[i].start for i in chosen],
            [self.spans[i].count for i in chosen],
            [self.tables[i] for i in chosen],
            page_tokens=PAGE,
            trees={n: b for n, i in enumerate(chosen) if (b := self.spans[i].before) is not None},
        )
        query = torch.cat([self.query[i] for i in chosen])
        if backend == "kernel":
            pools = query, self.key, self.value, layout, self.size**-0.5
            out = kernel.paged_attention(*pools, split=SPLIT, block=BLOCK, window=window)
        else:
            pools = query, self.key, self.value, layout
            out = paged_attention(*pools, window=window, backend=backend)
        return list(out.split([self.spans[i].count for i in chosen]))


SPANS = {
    "one token": [Span(0, 1)],
    "ragged": [Span(31, 1), Span(0, 9), Span(30, 5), Span(64, 3)],
    "tree": [Span(29, 7, TREE), Span(5, 1), Span(0, 3, (-1, 0, 0))],
}


@pytest.mark.parametrize("dtype", tuple(TOLERANCE))
@pytest.mark.parametrize("sizes", [(6, 2, 8), (4, 4, 20), (5, 1, 16)])
@pytest.mark.parametrize("name", SPANS)
def test_equals_the_definition(name: str, sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    scene = Scene(SPANS[name], sizes, dtype)
    everyone = range(len(scene.spans))
    found, expected = (torch.cat(scene.run(everyone, b)) for b in ("kernel", "reference"))
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)


@pytest.mark.parametrize("name", ["ragged", "tree"])
@pytest.mark.parametrize("window", [1, 6, 29])
def test_a_window_equals_the_definition_alone_and_in_company(name: str, window: int) -> None:
    """Splits and blocks before it are skipped, and no bit depends on who shares a tile."""
    scene = Scene(SPANS[name], (6, 2, 8), torch.float32)
    everyone = range(len(scene.spans))
    together = scene.run(everyone, window=window)
    expected = scene.run(everyone, "reference", window)
    for i in everyone:
        torch.testing.assert_close(together[i], expected[i], rtol=1e-5, atol=1e-5)
        assert torch.equal(together[i], scene.run([i], window=window)[0])
    assert not torch.allclose(together[0], scene.run(everyone)[0], atol=1e-3)


@pytest.mark.parametrize("dtype", tuple(TOLERANCE))
def test_a_block_sees_all_of_itself(dtype: torch.dtype) -> None:
    scene = Scene([Span(31, 8), Span(0, 7), Span(3, 1)], (6, 2, 8), dtype)
    starts, counts = [31, 0, 3], [8, 7, 1]
    layout = PagedLayout.build(starts, counts, scene.tables, page_tokens=PAGE)
    pools = torch.cat(scene.query), scene.key, scene.value, layout
    found = kernel.paged_attention(*pools, 8**-0.5, split=SPLIT, block=BLOCK, whole=True)
    expected = draft_block_attention(*pools, backend="reference")
    bound = TOLERANCE[dtype]
    torch.testing.assert_close(found, expected, rtol=bound, atol=bound)
    chosen = draft_block_attention(*pools, backend="triton")
    torch.testing.assert_close(chosen, expected, rtol=bound, atol=bound)
    causal = paged_attention(*pools, backend="reference")
    assert not torch.allclose(found[0], causal[0], atol=0.05)
    torch.testing.assert_close(found[7], causal[7], rtol=bound, atol=bound)


def test_the_op_chooses_it_by_name() -> None:
    scene = Scene(SPANS["ragged"][:2], (2, 1, 8), torch.float32)
    found, expected = (scene.run([0, 1], backend) for backend in ("triton", "reference"))
    torch.testing.assert_close(torch.cat(found), torch.cat(expected), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["ragged", "tree"])
def test_a_row_does_not_depend_on_the_batch(name: str) -> None:
    scene = Scene(SPANS[name], (6, 2, 8), torch.bfloat16)
    everyone = list(range(len(scene.spans)))
    together = scene.run(everyone)
    turned = scene.run(everyone[::-1])[::-1]
    for i in everyone:
        assert torch.equal(together[i], scene.run([i])[0])
        assert torch.equal(together[i], turned[i])


def test_a_row_does_not_depend_on_chunking() -> None:
    scene = Scene([Span(20, 15)], (6, 2, 8), torch.float32)
    whole = scene.run([0])[0]
    parts = []
    for start, stop in ((20, 21), (21, 29), (29, 35)):
        layout = PagedLayout.build([start], [stop - start], scene.tables, page_tokens=PAGE)
        query = scene.query[0][start - 20 : stop - 20]
        out = kernel.paged_attention(
            query, scene.key, scene.value, layout, 8**-0.5, split=SPLIT, block=BLOCK
        )
        parts.append(out)
    assert torch.equal(whole, torch.cat(parts))


def test_a_tree_has_the_bits_of_its_chains() -> None:
    start = 29
    scene = Scene([Span(start, len(TREE), TREE)], (6, 2, 8), torch.float32)
    found = scene.run([0])[0]
    for row in range(len(TREE)):
        path, at = [], row
        while at >= 0:
            path.insert(0, at)
            at = TREE[at]
        key, value = scene.key.clone(), scene.value.clone()
        for depth, node in enumerate(path):
            to, source = start + depth, start + node
            table = scene.tables[0]
            for new, old in ((key, scene.key), (value, scene.value)):
                new[table[to // PAGE], to % PAGE] = old[table[source // PAGE], source % PAGE]
        layout = PagedLayout.build([start], [len(path)], scene.tables, page_tokens=PAGE)
        query = scene.query[0][path]
        chain = kernel.paged_attention(query, key, value, layout, 8**-0.5, split=SPLIT, block=BLOCK)
        assert torch.equal(chain[-1], found[row])
