"""The draft chain on each instruction set against its definition, and against brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agentspec_kernels._cpu import build
from agentspec_kernels.draft_block import Chain, ChainRequest, DraftHead, Sampling
from agentspec_kernels.draft_block.head import quantize_table
from agentspec_kernels.gumbel import gumbel_argmax

from agentspec.resources import user_cache_dir

ISAS = [isa for isa in build.ISA_FLAGS if build.runs_here(isa)]
VOCAB, HIDDEN, RANK, ROWS = 1000, 64, 32, 6
MODES = [
    Sampling(),
    Sampling(mode="noise", temperature=0.8, seed=1234),
    Sampling(mode="noise", temperature=1.3, seed=-5, top_p=0.7),
    Sampling(mode="dense", temperature=1.0),
    Sampling(mode="dense", temperature=0.7, top_k=11, top_p=0.9, min_p=0.02),
]


@pytest.fixture(scope="module", params=ISAS)
def library(request):
    return build.load(user_cache_dir() / "kernels", request.param)


def head_of(markov: str, *, candidates=32, confidence=True, reduced=False) -> DraftHead:
    random = np.random.default_rng(7)
    rank = 0 if markov == "none" else RANK
    rows = VOCAB // 2 if reduced else VOCAB
    inputs = {"gated": (1, HIDDEN + RANK), "rnn": (3, 2 * RANK + HIDDEN)}.get(markov)
    fields = {}
    if rank:
        fields["w1"], fields["w1_scale"] = quantize_table(random.normal(size=(VOCAB, rank)))
        fields["w2"], fields["w2_scale"] = quantize_table(random.normal(size=(rows, rank)))
    if inputs:
        fields["gate"] = random.normal(size=(inputs[0] * RANK, inputs[1])).astype(np.float32) * 0.1
        fields["gate_bias"] = random.normal(size=inputs[0] * RANK).astype(np.float32)
    if confidence:
        fields["confidence"] = random.normal(size=HIDDEN + rank + 1).astype(np.float32)
    if reduced:
        fields["target_id"] = random.permutation(VOCAB)[:rows].astype(np.int32)
    return DraftHead(
        vocab=VOCAB,
        rows=rows,
        hidden=HIDDEN,
        rank=rank,
        markov=markov,
        candidates=candidates,
        **fields,
    )


def request_of(head: DraftHead, sampling: Sampling, seed=0, mask=None, rows=ROWS) -> ChainRequest:
    random = np.random.default_rng(seed)
    return ChainRequest(
        logits=random.normal(size=(rows, head.rows)).astype(np.float32) * 3,
        hidden=random.normal(size=(rows, HIDDEN)).astype(np.float32),
        previous=int(random.integers(VOCAB)),
        position=100 + seed,
        sampling=sampling,
        mask=mask,
        state=np.zeros(RANK, np.float32) if head.markov == "rnn" else None,
        uniform=random.random(rows),
    )


@pytest.mark.parametrize("sampling", MODES, ids=lambda s: f"{s.mode}-{s.temperature}")
@pytest.mark.parametrize("markov", ["none", "vanilla", "gated", "rnn"])
@pytest.mark.parametrize("reduced", [False, True])
def test_equals_its_definition(library, markov, sampling, reduced):
    head = head_of(markov, reduced=reduced)
    allowed = np.random.default_rng(3).integers(0, 1 << 32, (VOCAB + 31) // 32, dtype=np.uint32)
    for seed, mask in enumerate([None, allowed]):
        ours = Chain(head, library).run(request_of(head, sampling, seed, mask))
        expected = Chain(head).run(request_of(head, sampling, seed, mask))
        assert ours.tokens == expected.tokens
        np.testing.assert_allclose(ours.confidence, expected.confidence, rtol=1e-4, atol=1e-4)
        if sampling.mode == "dense":
            assert ours.ids is not None and expected.ids is not None
            assert (ours.ids == expected.ids).all()
            assert ours.probs is not None and expected.probs is not None
            np.testing.assert_allclose(ours.probs, expected.probs, rtol=1e-4, atol=1e-6)


def test_without_heads_the_noise_is_the_targets_own():
    """With all candidates kept, the drafted token is the very one that the target would sample."""
    head = head_of("none", candidates=512, confidence=False, reduced=True)
    head = DraftHead(vocab=VOCAB, rows=512, hidden=HIDDEN, candidates=512)
    for seed in range(40):
        request = request_of(head, Sampling(mode="noise", temperature=0.9, seed=seed), seed)
        result = Chain(head).run(request)
        for k, token in enumerate(result.tokens):
            probs = torch.softmax(torch.from_numpy(request.logits[k]).double() / 0.9, 0)
            assert token == gumbel_argmax(probs, seed, request.position + k)


def test_confidence_looks_at_tokens_before_only(library):
    head = head_of("vanilla")
    greedy = Chain(head, library).run(request_of(head, Sampling()))
    sampled = Chain(head, library).run(
        request_of(head, Sampling(mode="noise", temperature=5.0, seed=3))
    )
    apart = next(k for k in range(ROWS) if greedy.tokens[k] != sampled.tokens[k])
    assert apart < ROWS - 1
    assert (greedy.confidence[: apart + 1] == sampled.confidence[: apart + 1]).all()
    assert greedy.confidence[apart + 1] != sampled.confidence[apart + 1]


def test_ends_where_nothing_is_allowed(library):
    head = head_of("vanilla")
    nothing = np.zeros((VOCAB + 31) // 32, np.uint32)
    assert Chain(head, library).run(request_of(head, Sampling(), mask=nothing)).tokens == []
    only = nothing.copy()
    only[700 // 32] = 1 << 700 % 32
    for library_or_none in (library, None):
        result = Chain(head, library_or_none).run(request_of(head, Sampling(), mask=only))
        assert result.tokens == [700] * ROWS, "one allowed token is a candidate, however bad"


def test_dense_draws_follow_what_is_told(library):
    head = head_of("vanilla", candidates=8)
    sampling = Sampling(mode="dense", temperature=2.0)
    base = request_of(head, sampling, rows=1)
    counts, told = np.zeros(VOCAB), np.zeros(VOCAB)
    steps = 4000
    for step in range(steps):
        request = ChainRequest(
            logits=base.logits,
            hidden=base.hidden,
            previous=base.previous,
            position=0,
            sampling=sampling,
            uniform=np.array([(step + 0.5) / steps]),
        )
        result = Chain(head, library).run(request)
        counts[result.tokens[0]] += 1
        assert result.ids is not None and result.probs is not None
        told[result.ids[0]] = result.probs[0]
    assert abs(counts / steps - told).max() <= 1.5 / steps
    assert abs(told.sum() - 1) < 1e-6


def test_ties_go_to_the_smaller_token(library):
    for reduced in (False, True):
        head = head_of("none", candidates=4, reduced=reduced)
        request = ChainRequest(
            logits=np.zeros((1, head.rows), np.float32),
            hidden=np.zeros((1, HIDDEN), np.float32),
            previous=0,
            position=0,
            sampling=Sampling(),
        )
        least = 0 if head.target_id is None else int(head.target_id.min())
        assert Chain(head, library).run(request).tokens == [least]
