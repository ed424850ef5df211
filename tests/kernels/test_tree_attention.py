"""A tree's rows attend as a chain of their path does: bit for bit on our kernels."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agentspec_kernels._cpu import build
from agentspec_kernels._cpu.program import PAGE, Pool, Program, Rows
from agentspec_kernels.paged_attention import PagedLayout, paged_attention

from agentspec.resources import user_cache_dir

ISAS = [isa for isa in build.ISA_FLAGS if build.runs_here(isa)]
HEADS, KV_HEADS, PAGES = 6, 2, 80
NONE = np.zeros(0, np.int32)
TREES = {
    "a chain": (0, 1, 2, 3),
    "two children": (0, 0),
    "a late branch": (0, 1, 2, 1, 4, 5),
    "branches of branches": (0, 0, 1, 1, 2, 2, 3, 6, 6, 8),
    "long": (*range(20), *range(5, 30)),
}
"""For each row behind the first the row that it follows."""


@pytest.fixture(scope="session")
def pools():
    cache = user_cache_dir() / "kernels"
    return {isa: Pool.create(build.load(cache, isa), 2) for isa in ISAS}


def path_to(tree: tuple[int, ...], row: int) -> list[int]:
    return [row] if row == 0 else [*path_to(tree, tree[row - 1]), row]


class Scene:
    """Random q, k, v: of ``cached`` positions, and of a tree's rows behind them."""

    def __init__(self, isa_pool: Pool, dim: int, cached: int, tree: tuple[int, ...]):
        rng = np.random.default_rng(dim + cached + len(tree))
        self.pool, self.dim, self.cached, self.tree = isa_pool, dim, cached, tree
        width = (HEADS + 2 * KV_HEADS) * dim
        self.context = rng.normal(0, 1, (cached, width)).astype(np.float32)
        self.rows = rng.normal(0, 1, (len(tree) + 1, width)).astype(np.float32)
        angles = rng.uniform(0, 6, (PAGES * PAGE, dim // 2))
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.pages = rng.permutation(PAGES).astype(np.int32)
        size = max(cached, len(tree) + 1)
        self.buffer, self.out = np.zeros((size, width), np.float32), np.zeros((size, HEADS * dim))
        self.out = self.out.astype(np.float32)
        self.program = Program(heads=HEADS, kv_heads=KV_HEADS, dim=dim, layers=2, num_pages=PAGES)
        self.program.k[:] = self.program.v[:] = 0x7FC0  # not a number, until it is written
        self.program.activations(1, 32)
        self.program.rope_write(self.buffer, self.cos, self.sin, layer=1)
        self.program.attend(self.buffer, self.out, layer=1)

    def run(self, rows: np.ndarray, start: int, before: list[int] | None = None) -> np.ndarray:
        self.buffer[: len(rows)] = rows
        ids = np.zeros(len(rows), np.int32)
        spans = [(0, len(rows), start, 0)]
        parents = NONE if before is None else np.array(before, np.int32)
        trees = {} if before is None else {0: 0}
        self.program.run(self.pool, Rows(ids, NONE, spans, self.pages, parents, trees))
        return self.out[: len(rows)].copy()

    def prefill(self) -> None:
        if self.cached:
            self.run(self.context, 0)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dim", [32, 64])
@pytest.mark.parametrize("cached", [0, 1, 15, 250, 256, 509])
@pytest.mark.parametrize("name", TREES)
def test_a_rows_bits_are_those_of_a_chain_of_its_path(pools, isa, dim, cached, name):
    tree = TREES[name]
    scene = Scene(pools[isa], dim, cached, tree)
    scene.prefill()
    found = scene.run(scene.rows, cached, [-1, *tree])
    leaves = set(range(len(tree) + 1)) - set(tree)
    for leaf in leaves:
        path = path_to(tree, leaf)
        chain = scene.run(scene.rows[path], cached)
        assert np.array_equal(found[path], chain)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("cached", [3, 250])
def test_a_moved_path_is_what_a_chain_would_have_written(pools, isa, cached):
    tree = TREES["branches of branches"]
    scene = Scene(pools[isa], 32, cached, tree)
    scene.prefill()
    path = path_to(tree, 10)
    scene.run(scene.rows[path], cached)
    expected = scene.program.k.copy(), scene.program.v.copy()
    scene.run(scene.rows, cached, [-1, *tree])
    moves = [(cached + row, cached + i) for i, row in enumerate(path) if row != i]
    assert moves
    scene.program.move(scene.pages.tolist(), moves)
    for slot in range(cached + len(path)):
        page, at = scene.pages[slot // PAGE], slot % PAGE
        for plane, wanted in zip((scene.program.k, scene.program.v), expected, strict=True):
            ours, theirs = plane[1, page], wanted[1, page]
            if plane is scene.program.k:
                assert np.array_equal(ours[:, :, at], theirs[:, :, at])
            else:
                assert np.array_equal(ours[:, at // 2, :, at % 2], theirs[:, at // 2, :, at % 2])


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("cached", [0, 7, 40])
@pytest.mark.parametrize("name", TREES)
def test_stock_backends_give_what_a_chain_of_the_path_gets(backend, cached, name):
    """[T, H, D] float64; T = cached + rows of the tree."""
    tree, page_tokens, dim = TREES[name], 4, 8
    generator = torch.Generator().manual_seed(len(tree))
    size = cached + len(tree) + 1
    query, key, value = (
        torch.randn(size, heads, dim, generator=generator, dtype=torch.float64)
        for heads in (HEADS, KV_HEADS, KV_HEADS)
    )
    table = torch.randperm(40, generator=generator).tolist()

    def attend(rows: list[int], keys: list[int], before=None) -> torch.Tensor:
        layout = PagedLayout.build(
            [cached],
            [len(rows)],
            [table],
            page_tokens=page_tokens,
            trees=None if before is None else {0: before},
        )
        caches = []
        for plane in (key, value):
            cache = torch.full((40, page_tokens, KV_HEADS, dim), 9.0, dtype=torch.float64)
            for slot, source in enumerate(keys):
                cache[table[slot // page_tokens], slot % page_tokens] = plane[source]
            caches.append(cache)
        return paged_attention(query[rows], caches[0], caches[1], layout, backend=backend)

    rows = list(range(cached, size))
    found = attend(rows, list(range(size)), [-1, *tree])
    for leaf in range(len(tree) + 1):
        path = path_to(tree, leaf)
        chain = [cached + row for row in path]
        alone = attend(chain, [*range(cached), *chain])
        torch.testing.assert_close(found[path], alone, rtol=1e-12, atol=1e-12)


def test_positions_are_depths_and_slots_are_places():
    layout = PagedLayout.build([5], [4], [[3, 1, 2]], page_tokens=4, trees={0: [-1, 0, 0, 1]})
    assert layout.positions.tolist() == [5, 6, 6, 7]
    assert layout.slots.tolist() == [5, 6, 7, 8]
