"""The CPU library's rotation, pages, attention, norm and SiLU against float64 formulas."""

import itertools

import numpy as np
import pytest
import torch
from agentspec_kernels._cpu import build
from agentspec_kernels._cpu.program import PAGE, Pool, Program, Rows

from agentspec.resources import user_cache_dir

ISAS = [isa for isa in build.ISA_FLAGS if build.runs_here(isa)]
HEADS, KV_HEADS, POSITIONS = 6, 2, 1200


@pytest.fixture(scope="session")
def pools():
    cache = user_cache_dir() / "kernels"  # shared: compiling takes seconds
    return {isa: Pool.create(build.load(cache, isa), 2) for isa in ISAS}


def rotate(x, cos, sin):
    """x [T, heads, D] by cos, sin [T, D/2]."""
    a, b = np.split(x, 2, axis=-1)
    cos, sin = cos[:, None], sin[:, None]
    return np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)


def bf16(x):
    return torch.from_numpy(x.astype(np.float32)).bfloat16().double().numpy()


def attention(q, k, v):
    """q [T, H, D] float64 of the last T positions, k, v [S, J, D]; causal, softmax in float64."""
    rows, heads, dim = q.shape
    size, group = len(k), heads // k.shape[1]
    scores = np.einsum("thd,shd->hts", q, k.repeat(group, axis=1)) / np.sqrt(dim)
    seen = np.arange(size)[None, :] <= np.arange(size - rows, size)[:, None]
    scores = np.where(seen, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    return np.einsum("hts,shd->thd", weights, v.repeat(group, axis=1)).reshape(rows, -1)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dim", [32, 64, 96, 128])
@pytest.mark.parametrize("cached", [0, 15, 250, 256, 509, 1100])
@pytest.mark.parametrize("rows", [1, 5, 16, 45])
def test_attention_over_pages(pools, isa, dim, cached, rows):
    rng = np.random.default_rng(dim + cached + rows)
    size = cached + rows
    width = (HEADS + 2 * KV_HEADS) * dim
    qkv = rng.normal(0, 1, (size, width)).astype(np.float32)
    angles = rng.uniform(0, 6, (POSITIONS, dim // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    num_pages = POSITIONS // PAGE + 1
    program = Program(heads=HEADS, kv_heads=KV_HEADS, dim=dim, layers=2, num_pages=num_pages)
    pages = rng.permutation(num_pages).astype(np.int32)
    out = np.full((size, HEADS * dim), np.nan, np.float32)
    buffer = np.zeros_like(qkv)
    program.activations(1, 32)
    program.rope_write(buffer, cos, sin, layer=1)
    program.attend(buffer, out, layer=1)
    none = np.zeros(0, np.int32)
    for first, last in ([(0, cached)] if cached else []) + [(cached, size)]:
        buffer[: last - first] = qkv[first:last]
        ids = np.zeros(last - first, np.int32)
        program.run(pools[isa], Rows(ids, none, [(0, last - first, first, 0)], pages))
    parts = qkv.astype(np.float64).reshape(size, -1, dim)
    q = rotate(parts[:, :HEADS], cos[:size], sin[:size])[cached:]
    k = bf16(rotate(parts[:, HEADS : HEADS + KV_HEADS], cos[:size], sin[:size]))
    v = bf16(parts[:, HEADS + KV_HEADS :])
    # K is rounded to bf16 after a float32 rotation: a value near a tie may round the other way.
    # The bf16 instruction takes queries and weights in bf16 too.
    atol = 8e-3 if isa == "avx512bf16" else 4e-3
    np.testing.assert_allclose(out[:rows], attention(q, k, v), atol=atol)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("cached", [250, 256, 509])
@pytest.mark.parametrize("rows", [5, 16, 45])
def test_a_row_has_the_same_bits_alone(pools, isa, cached, rows):
    """Also where a span reaches into a chunk of keys that its first rows don't see."""
    dim, size = 64, cached + rows
    rng = np.random.default_rng(rows)
    qkv = rng.normal(0, 1, (size, (HEADS + 2 * KV_HEADS) * dim)).astype(np.float32)
    angles = rng.uniform(0, 6, (POSITIONS, dim // 2))
    cos, sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
    found = []
    for step in (rows, 1):
        num_pages = size // PAGE + 1
        program = Program(heads=HEADS, kv_heads=KV_HEADS, dim=dim, layers=1, num_pages=num_pages)
        out = np.zeros((size, HEADS * dim), np.float32)
        buffer = np.zeros_like(qkv)
        program.activations(1, 32)
        program.rope_write(buffer, cos, sin, layer=0)
        program.attend(buffer, out, layer=0)
        pages, none, told = np.arange(num_pages, dtype=np.int32), np.zeros(0, np.int32), []
        borders = [0, *range(cached, size, step), size]
        for first, last in itertools.pairwise(borders):
            buffer[: last - first] = qkv[first:last]
            ids = np.zeros(last - first, np.int32)
            program.run(pools[isa], Rows(ids, none, [(0, last - first, first, 0)], pages))
            told.append(out[: last - first].copy())
        found.append(np.concatenate(told[1:]))
    np.testing.assert_array_equal(found[0], found[1])


@pytest.mark.parametrize("isa", ISAS)
def test_norm_silu_embed_gather_and_tap(pools, isa):
    """Seen through a linear layer with an identity matrix, since activations are int8."""
    from agentspec_kernels.linear_q import pack, quantize

    rng = np.random.default_rng(1)
    rows, width = 7, 64
    table = rng.normal(0, 2, (50, width)).astype(np.float32)
    gain = rng.normal(1, 0.2, width).astype(np.float32)
    identity = pack(quantize(np.eye(width, dtype=np.float32)))
    ids = rng.integers(0, 50, rows).astype(np.int32)
    wanted = np.array([1, 4, 6], np.int32)
    x, normed, last = (np.zeros((n, width), np.float32) for n in (rows, rows, 3))
    tapped = np.zeros((rows, 2 * width), np.float32)
    gate_up = rng.normal(0, 2, (rows, 2 * width)).astype(np.float32)
    gated = np.zeros((rows, width), np.float32)
    program = Program(heads=1, kv_heads=1, dim=32, layers=1, num_pages=1)
    program.activations(rows, width)
    program.embed(table, x)
    program.norm_quant(x, gain, 1e-5)
    program.linear(identity, width, width, normed, four_bit=False)
    program.tap(x, tapped, width)
    program.silu_quant(gate_up)
    program.linear(identity, width, width, gated, four_bit=False)
    program.gather(x, last)
    program.run(pools[isa], Rows(ids, wanted, [(0, rows, 0, 0)], np.zeros(1, np.int32)))
    np.testing.assert_array_equal(x, table[ids])
    np.testing.assert_array_equal(last, x[wanted])
    np.testing.assert_array_equal(tapped, np.concatenate([np.zeros_like(x), x], axis=1))
    y = x.astype(np.float64)
    expected = y / np.sqrt((y**2).mean(-1, keepdims=True) + 1e-5) * gain
    gate, up = np.split(gate_up.astype(np.float64), 2, axis=1)
    for ours, truth in ((normed, expected), (gated, gate / (1 + np.exp(-gate)) * up)):
        step = np.abs(truth).reshape(rows, -1, 32).max(-1).repeat(32, axis=1) / 127
        assert (np.abs(ours - truth) <= 0.52 * step + 1e-4 * np.abs(truth) + 1e-5).all()
