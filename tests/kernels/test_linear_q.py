"""Group-quantised weights: packing, the definition, and the compiled kernels on every ISA."""

import numpy as np
import pytest
import torch
from agentspec_kernels._cpu import build
from agentspec_kernels._cpu.program import Pool, Program, Rows
from agentspec_kernels.linear_q import (
    QuantizedWeight,
    concatenate,
    from_q4_1,
    from_q8_0,
    linear_q_reference,
    pack,
    quantize,
    quantize4,
    unpack,
)
from gguf import GGMLQuantizationType, dequantize

from agentspec.resources import user_cache_dir

ISAS = [isa for isa in build.ISA_FLAGS if build.runs_here(isa)]


@pytest.fixture(scope="session")
def pool():
    """Isa -> pool of two threads."""
    cache = user_cache_dir() / "kernels"  # shared: compiling takes seconds
    return {isa: Pool.create(build.load(cache, isa), 2) for isa in ISAS}


def random_weight(rng, outputs, inputs, four_bit) -> QuantizedWeight:
    scales = (outputs, inputs // 32)
    d = rng.uniform(0.001, 0.02, scales).astype(np.float16)
    if four_bit:
        codes = rng.integers(0, 16, (outputs, inputs)).astype(np.uint8)
        return QuantizedWeight(codes, d, rng.normal(0, 0.05, scales).astype(np.float16))
    return QuantizedWeight(rng.integers(-127, 128, (outputs, inputs)).astype(np.int8), d, None)


def run_linear(pool, weight, x, base=None):
    """x [T, K] through one program: quantise, then linear; ``base`` is added to."""
    rows, inputs = x.shape
    outputs = weight.codes.shape[0]
    program = Program(heads=1, kv_heads=1, dim=32, layers=1, num_pages=1)
    out = np.full((rows, outputs), np.nan, np.float32) if base is None else base.copy()
    program.activations(rows, inputs)
    program.quant(x)
    packed, four = pack(weight), weight.four_bit
    program.linear(packed, outputs, inputs, out, four_bit=four, add=base is not None)
    none = np.zeros(0, np.int32)
    program.run(pool, Rows(np.zeros(rows, np.int32), none, [(0, rows, 0, 0)], none))
    return out


def test_gguf_blocks_are_read_as_the_format_defines_them():
    rng = np.random.default_rng(0)
    for kind, size, read in (
        (GGMLQuantizationType.Q4_1, 20, from_q4_1),
        (GGMLQuantizationType.Q8_0, 34, from_q8_0),
    ):
        raw = rng.integers(0, 256, (6, 3, size)).astype(np.uint8)
        raw[..., 1] = raw[..., 1] & 0x3B  # keep the fp16 scales finite
        if size == 20:
            raw[..., 3] = raw[..., 3] & 0x3B
        dense = read(raw, 6, 96).dense()
        np.testing.assert_array_equal(dense, dequantize(raw.reshape(6, -1), kind))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("four_bit", [True, False])
@pytest.mark.parametrize(("rows", "outputs", "inputs"), [(1, 16, 32), (5, 48, 96), (19, 112, 576)])
def test_kernel_equals_the_definition(pool, isa, four_bit, rows, outputs, inputs):
    rng = np.random.default_rng(rows)
    weight = random_weight(rng, outputs, inputs, four_bit)
    x = rng.normal(0, 1, (rows, inputs)).astype(np.float32)
    x[0, :32] = 0  # a group without any activation
    expected = linear_q_reference(torch.from_numpy(x), weight).numpy()
    np.testing.assert_allclose(run_linear(pool[isa], weight, x), expected, rtol=1e-4, atol=1e-4)
    base = rng.normal(0, 1, expected.shape).astype(np.float32)
    added = run_linear(pool[isa], weight, x, base)
    np.testing.assert_allclose(added, base + expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("four_bit", [True, False])
def test_a_rows_bits_do_not_depend_on_the_other_rows(pool, isa, four_bit):
    rng = np.random.default_rng(3)
    weight = random_weight(rng, 64, 288, four_bit)
    x = rng.normal(0, 3, (23, 288)).astype(np.float32)
    whole = run_linear(pool[isa], weight, x)
    for first, last in [(0, 1), (4, 7), (9, 22), (22, 23)]:
        part = run_linear(pool[isa], weight, np.ascontiguousarray(x[first:last]))
        np.testing.assert_array_equal(part, whole[first:last])


def test_the_definition_is_close_to_float_weights():
    rng = np.random.default_rng(5)
    dense = rng.normal(0, 0.1, (64, 256)).astype(np.float32)
    x = torch.from_numpy(rng.normal(0, 1, (8, 256)).astype(np.float32))
    expected = x @ torch.from_numpy(dense).T
    error = (linear_q_reference(x, quantize(dense)) - expected).abs().max()
    assert error < 0.02 * expected.abs().max()


def test_four_bits_are_the_nearest_of_sixteen_steps():
    rng = np.random.default_rng(6)
    dense = rng.normal(0, 0.1, (40, 96)).astype(np.float32)
    dense[0, :32] = 0.25  # a group of one value
    dense[1, :32] = np.linspace(-0.3, 0.9, 32)
    weight = quantize4(dense)
    assert weight.four_bit and weight.codes.min() == 0 and weight.codes.max() == 15
    groups = dense.reshape(40, 3, 32)
    step = (groups.max(-1) - groups.min(-1))[..., None] / 15
    error = np.abs(weight.dense().reshape(40, 3, 32) - groups)
    assert (error <= 0.51 * step + 1e-3 * np.abs(groups).max()).all()
    packed = pack(weight)
    assert (unpack(packed, 40, 96, four_bit=True).codes == weight.codes).all()


def test_concatenation_and_row_order_keep_the_values():
    rng = np.random.default_rng(7)
    a, b = (random_weight(rng, n, 64, True) for n in (16, 32))
    np.testing.assert_array_equal(
        concatenate([a, b]).dense(), np.concatenate([a.dense(), b.dense()])
    )
    order = rng.permutation(16)
    np.testing.assert_array_equal(a.rows(order).dense(), a.dense()[order])


@pytest.mark.parametrize("four_bit", [True, False])
@pytest.mark.parametrize("outputs", [16, 40])
def test_unpacking_gives_back_what_was_packed(four_bit, outputs):
    weight = random_weight(np.random.default_rng(4), outputs, 96, four_bit)
    again = unpack(pack(weight), outputs, 96, four_bit=four_bit)
    assert (again.codes == weight.codes).all() and again.codes.dtype == weight.codes.dtype
    assert (again.dense() == weight.dense()).all()
