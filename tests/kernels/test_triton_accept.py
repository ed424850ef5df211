"""``accept`` in Triton against its definition, and the definition against the engine's rule."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from agentspec_kernels.accept import Chains, accept, kernel
from agentspec_kernels.accept import reference as definition
from agentspec_kernels.gumbel.reference import _signed, gumbel, key

from agentspec.engine.sampling import SamplingParams, target_probs

pytestmark = pytest.mark.usefixtures("poisoned")
VOCAB = 300
RULES = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "plain": (0.8, 0, 1.0, 0.0),
    "top_k": (1.0, 7, 1.0, 0.0),
    "top_p": (0.7, 0, 0.8, 0.0),
    "all": (1.3, 40, 0.9, 0.02),
}
"""temperature, top_k, top_p, min_p"""


@pytest.fixture(autouse=True)
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "BLOCK", 256)


def chains(
    rule: str, dtype: torch.dtype, *, seeded: bool, masked: bool, dense: bool, seed: int = 0
) -> Chains:
    """Two chains of 3 and 1 rows, whose drafts are mostly what the target likes."""
    generator = torch.Generator().manual_seed(seed)
    starts = [0, 3, 4]
    logits = (3 * torch.randn(4, VOCAB, generator=generator)).to(dtype)
    logits[:, 17] = logits[:, 230] = logits[:, 40]  # equal scores rank by token
    likely = torch.softmax(logits.float() / 0.5, -1)
    drafts = torch.multinomial(likely, 1, generator=generator)[:, 0].int()
    drafts[[stop - 1 for stop in starts[1:]]] = -1
    temperature, top_k, top_p, min_p = RULES[rule]
    words = torch.randint(-(2**31), 2**31 - 1, (4, 10), generator=generator, dtype=torch.int32)
    uniforms = torch.rand(2, 4, generator=generator, dtype=torch.float64)
    return Chains(
        logits=logits,
        starts=torch.tensor(starts, dtype=torch.int32),
        drafts=drafts,
        temperature=torch.full((4,), temperature),
        top_k=torch.full((4,), top_k, dtype=torch.int32),
        top_p=torch.full((4,), top_p),
        min_p=torch.full((4,), min_p),
        seeded=torch.full((4,), int(seeded), dtype=torch.int32),
        key=torch.tensor([_signed(key(seed, 50 + row)) for row in range(4)]),
        coin=uniforms[0],
        pick=uniforms[1],
        mask=words if masked else None,
        draft_probs=likely if dense else None,
    )


def same(given: Chains) -> None:
    found, expected = (accept(given, backend=b) for b in ("triton", "reference"))
    assert found.count.tolist() == expected.count.tolist()
    assert found.token.tolist() == expected.token.tolist()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "dtype, masked, dense", [(torch.float32, False, False), (torch.bfloat16, True, True)]
)
def test_equals_the_definition(rule: str, masked: bool, dense: bool, dtype: torch.dtype) -> None:
    same(chains(rule, dtype, seeded=False, masked=masked, dense=dense, seed=int(masked)))


@pytest.mark.parametrize("rule", ["plain", "top_k"])
def test_seeded_equals_the_definition(rule: str) -> None:
    same(chains(rule, torch.bfloat16, seeded=True, masked=True, dense=False))


def test_a_row_that_allows_nothing_gives_no_token() -> None:
    for poison in (-torch.inf, torch.inf, torch.nan):
        given = chains("plain", torch.float32, seeded=False, masked=True, dense=False)
        given.logits[3, 5] = poison
        assert given.mask is not None
        given.mask[3] = 0 if poison < 0 else -1
        found = accept(given, backend="triton")
        assert int(found.count[1]) == 0 and int(found.token[1]) == -1
        same(given)


def test_a_chain_does_not_depend_on_the_others() -> None:
    given = chains("plain", torch.bfloat16, seeded=False, masked=True, dense=True)
    together = accept(given, backend="triton")
    rows = slice(3, 4)
    fields = {f.name: getattr(given, f.name)[rows] for f in dataclasses.fields(Chains)}
    fields["starts"] = torch.tensor([0, 1], dtype=torch.int32)
    alone = accept(Chains(**fields), backend="triton")
    assert (alone.count[0], alone.token[0]) == (together.count[1], together.token[1])


@pytest.mark.parametrize("rule", [name for name in RULES if name != "greedy"])
def test_the_definition_has_the_engines_target(rule: str) -> None:
    given = chains(rule, torch.float32, seeded=False, masked=False, dense=False)
    _, top_k, *_ = RULES[rule]
    heat, top_p, min_p = (float(each[0]) for each in (given.temperature, given.top_p, given.min_p))
    params = SamplingParams(temperature=heat, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = target_probs(given.logits[0].double(), params)
    torch.testing.assert_close(definition.target_probs(given, 0), expected, rtol=1e-9, atol=1e-12)


def test_the_noise_is_that_of_the_seed() -> None:
    expected = gumbel(3, 77, VOCAB, dtype=torch.float64)
    assert torch.equal(definition.from_key(_signed(key(3, 77)), VOCAB), expected)
