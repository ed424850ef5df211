"""``markov_step`` in Triton against its definition, and that against the chain's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agentspec_kernels.draft_block import Chain, ChainRequest, DraftHead, Sampling
from agentspec_kernels.gumbel.reference import _signed, key
from agentspec_kernels.markov_step import Step, kernel, markov_step

pytestmark = pytest.mark.usefixtures("poisoned")
ROWS, WIDTH, RANK = 3, 300, 16
RULES = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "plain": (0.8, 0, 1.0, 0.0),
    "all": (1.3, 9, 0.9, 0.02),
}
"""temperature, top_k, top_p, min_p"""


@pytest.fixture(autouse=True)
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCK", 256)


def step(rule: str, dtype: torch.dtype, *, seeded: bool, named: bool) -> Step:
    generator = torch.Generator().manual_seed(len(rule))
    temperature, top_k, top_p, min_p = RULES[rule]
    logits = (2 * torch.randn(ROWS, WIDTH, generator=generator)).to(dtype)
    logits[:, 7] = logits[:, 290]  # equals
    words = torch.randint(-(2**31), 2**31, (ROWS, 10), generator=generator).int()
    words[1] = 0
    words[1, 2] = 11  # three tokens are left: fewer than candidates
    return Step(
        logits=logits,
        vector=torch.randn(ROWS, RANK, generator=generator),
        w2=torch.randint(-127, 128, (WIDTH, RANK), generator=generator).to(torch.int8),
        w2_scale=torch.rand(WIDTH, generator=generator) / 100,
        temperature=torch.full((ROWS,), temperature),
        top_k=torch.full((ROWS,), top_k, dtype=torch.int32),
        top_p=torch.full((ROWS,), top_p),
        min_p=torch.full((ROWS,), min_p),
        seeded=torch.full((ROWS,), int(seeded), dtype=torch.int32),
        key=torch.tensor([_signed(key(5, 60 + row)) for row in range(ROWS)]),
        pick=torch.rand(ROWS, generator=generator, dtype=torch.float64),
        candidates=16,
        mask=words if named else None,
        target_id=3 * torch.arange(WIDTH, dtype=torch.int32) if named else None,
    )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "dtype, seeded, named",
    [
        (torch.float32, False, False),
        (torch.bfloat16, True, True),
        (torch.float32, False, True),
    ],
)
def test_equals_the_definition(rule: str, seeded: bool, named: bool, dtype: torch.dtype) -> None:
    given = step(rule, dtype, seeded=seeded, named=named)
    found, expected = (markov_step(given, backend=b) for b in ("triton", "reference"))
    assert found.token.tolist() == expected.token.tolist()
    assert found.ids.tolist() == expected.ids.tolist()
    torch.testing.assert_close(found.probs, expected.probs, rtol=2e-5, atol=1e-6)


def test_a_row_that_allows_nothing_has_no_token() -> None:
    given = step("plain", torch.float32, seeded=False, named=True)
    assert given.mask is not None
    given.mask[2] = 0
    found = markov_step(given, backend="triton")
    assert int(found.token[2]) == -1 and int(found.token[1]) >= 0
    assert found.ids[2].tolist() == [-1] * 16 and not found.probs[2].any()


@pytest.mark.parametrize("rule, mode", [("greedy", "greedy"), ("all", "noise")])
def test_the_definition_is_a_row_of_the_chain(rule: str, mode: str) -> None:
    given = step(rule, torch.float32, seeded=True, named=False)
    w1 = np.random.default_rng(0).integers(-127, 128, (WIDTH, RANK)).astype(np.int8)
    scale = np.full(WIDTH, 0.01, np.float32)
    head = DraftHead(
        vocab=WIDTH,
        rows=WIDTH,
        hidden=16,
        rank=RANK,
        markov="vanilla",
        candidates=16,
        w1=w1,
        w1_scale=scale,
        w2=given.w2.numpy(),
        w2_scale=given.w2_scale.numpy(),
    )
    given.vector[0] = torch.from_numpy(w1[4].astype(np.float32)) * 0.01
    _, top_k, *_ = RULES[rule]
    sampling = Sampling(
        mode="greedy" if mode == "greedy" else "noise",
        temperature=float(given.temperature[0]),
        top_k=top_k,
        top_p=float(given.top_p[0]),
        min_p=float(given.min_p[0]),
        seed=5,
    )
    request = ChainRequest(
        logits=given.logits[:1].numpy(),
        hidden=np.zeros((1, 16), np.float32),
        previous=4,
        position=60,
        sampling=sampling,
    )
    found = markov_step(given, backend="reference").token[0]
    assert Chain(head).run(request).tokens == [int(found)]
