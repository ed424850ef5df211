"""``accept_tree``: in Triton against its definition, and the definition against the engine's."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from agentspec_kernels.accept import Chains, Trees, accept, accept_tree, tree_kernel
from agentspec_kernels.gumbel.reference import _signed, key

from agentspec.engine.draft.base import DraftView, Proposal
from agentspec.engine.sampling import Entropy, Purpose, SamplingParams
from agentspec.engine.verify import verify

pytestmark = pytest.mark.usefixtures("poisoned")
VOCAB = 300
RULES = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "plain": (0.8, 0, 1.0, 0.0),
    "top_k": (1.0, 7, 1.0, 0.0),
    "top_p": (0.7, 0, 0.8, 0.0),
}
"""temperature, top_k, top_p, min_p"""
PARENTS = (-1, 0, 0, 0, 1, 1, 2, 4)
"""Of the first tree; the second has its root alone, the third is a chain of two drafts."""
ROOTS = (0, 8, 9, 12)


@pytest.fixture(autouse=True)
def two_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree_kernel, "BLOCK", 256)


def trees(
    rule: str,
    dtype: torch.dtype = torch.float32,
    *,
    seeded: bool = False,
    masked: bool = False,
    dense: bool = False,
    seed: int = 0,
) -> Trees:
    """Trees whose tokens are mostly what the target likes; some follow the same row twice."""
    generator = torch.Generator().manual_seed(seed)
    parents = torch.tensor((*PARENTS, -1, -1, 9, 10), dtype=torch.int32)
    rows = len(parents)
    logits = (3 * torch.randn(rows, VOCAB, generator=generator)).to(dtype)
    logits[:, 17] = logits[:, 230] = logits[:, 40]
    likely = torch.softmax(logits.float() / 0.7, -1)[parents.clamp(min=0).long()]
    drafts = torch.multinomial(likely, 1, generator=generator)[:, 0].int()
    drafts[parents < 0] = -1
    temperature, top_k, top_p, min_p = RULES[rule]
    words = torch.randint(-(2**31), 2**31 - 1, (rows, 10), generator=generator, dtype=torch.int32)
    uniforms = torch.rand(2, rows, generator=generator, dtype=torch.float64)
    return Trees(
        rows=Chains(
            logits=logits,
            starts=torch.tensor(ROOTS, dtype=torch.int32),
            drafts=drafts,
            temperature=torch.full((rows,), temperature),
            top_k=torch.full((rows,), top_k, dtype=torch.int32),
            top_p=torch.full((rows,), top_p),
            min_p=torch.full((rows,), min_p),
            seeded=torch.full((rows,), int(seeded), dtype=torch.int32),
            key=torch.tensor([_signed(key(seed, 50 + row)) for row in range(rows)]),
            coin=uniforms[0],
            pick=uniforms[1],
            mask=words | 1 << 17 if masked else None,
            draft_probs=likely if dense else None,
        ),
        parents=parents,
    )


def same(given: Trees) -> list[int]:
    found, expected = (accept_tree(given, backend=b) for b in ("triton", "reference"))
    for name in ("count", "token", "stands"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist(), name
    return found.count.tolist()


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(
    "dtype, masked, dense", [(torch.float32, False, False), (torch.bfloat16, True, True)]
)
def test_equals_the_definition(rule: str, masked: bool, dense: bool, dtype: torch.dtype) -> None:
    same(trees(rule, dtype, masked=masked, dense=dense, seed=int(masked)))


def test_seeded_equals_the_definition() -> None:
    same(trees("top_k", torch.bfloat16, seeded=True, masked=True, dense=True))


def test_every_sibling_is_tried_and_rejected() -> None:
    """Coins of 1 reject what isn't certain: what three rejections leave is sampled."""
    given = trees("plain", dense=True)
    given.rows.coin.fill_(1.0 - 2**-53)
    assert given.rows.draft_probs is not None
    likely = torch.softmax(given.rows.logits[0], -1)
    for row, token in enumerate(likely.topk(5).indices[2:].tolist(), start=1):
        given.rows.drafts[row] = token
        given.rows.draft_probs[row] = 0.4 * likely
        given.rows.draft_probs[row, token] += 0.6
    assert same(given)[0] == 0


def test_a_row_that_allows_nothing_gives_no_token() -> None:
    given = trees("plain", masked=True)
    assert given.rows.mask is not None
    given.rows.mask[8] = 0
    assert same(given)[1] == 0
    assert int(accept_tree(given, backend="triton").token[1]) == -1


def test_a_tree_without_branches_is_a_chain() -> None:
    for dense in (False, True):
        given = trees("plain", dense=dense, seed=4)
        rows = {f.name: getattr(given.rows, f.name) for f in dataclasses.fields(Chains)}
        part = {name: v if v is None else v[9:12].clone() for name, v in rows.items()}
        part["starts"] = torch.tensor([0, 3], dtype=torch.int32)
        tree = Trees(rows=Chains(**part), parents=torch.tensor([-1, 0, 1], dtype=torch.int32))
        # A chain's row tests the token behind it, by its own coin; certain drafts are sampled
        # against, so there the pick decides in a tree and the coin in a chain.
        for name in ("drafts", "coin", "draft_probs"):
            if part[name] is not None:
                part[name] = part[name].roll(-1, 0).contiguous()
        if dense:
            chain = accept(Chains(**part), backend="reference")
            path = accept_tree(tree, backend="triton")
            assert (chain.count.tolist(), chain.token.tolist()) == (
                path.count.tolist(),
                path.token.tolist(),
            )
        same(tree)


@pytest.mark.parametrize("dense", (False, True))
@pytest.mark.parametrize("rule, seed", [("greedy", None), ("plain", None), ("top_k", 5)])
def test_the_definition_is_the_engines(rule: str, dense: bool, seed: int | None) -> None:
    heat, top_k, top_p, min_p = RULES[rule]
    params = SamplingParams(temperature=heat, top_k=top_k, top_p=top_p, min_p=min_p)
    for trial in range(12):
        given = trees(rule, dense=dense, seeded=seed is not None, seed=trial)
        entropy = Entropy.of(seed)
        rows, depth = given.rows, [0] * len(PARENTS)
        for row, parent in enumerate(PARENTS):
            depth[row] = 0 if parent < 0 else depth[parent] + 1
            attempt = PARENTS[:row].count(parent)
            position = 3 + depth[row]
            rows.pick[row] = entropy.uniform(position, Purpose.SAMPLE)
            rows.coin[row] = entropy.uniform(position - 1, Purpose.ACCEPT, attempt)
            rows.key[row] = _signed(key(entropy.key, position))
        proposal = Proposal(
            tokens=tuple(rows.drafts[1:8].tolist()),
            sources=("dspark",) * 7,
            confidence=(1.0,) * 7,
            draft_probs=None if rows.draft_probs is None else rows.draft_probs[1:8],
            parents=tuple(parent - 1 for parent in PARENTS[1:]),
        )
        view = DraftView(0, "", None, [1, 2, 3], 3, params)
        verdict = verify(view, proposal, rows.logits.double(), range(8), entropy)
        path = accept_tree(given, backend="reference")
        assert (int(path.count[0]), int(path.token[0])) == (verdict.accepted, verdict.next_token)
        assert path.stands[1:8].nonzero()[:, 0].tolist() == list(verdict.path)
