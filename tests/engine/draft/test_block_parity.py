"""Block drafts against an independent slow version: in torch to rounding, in int8 nearly so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from agentspec_kernels.linear_q import quantize4

from agentspec.engine.batch import Span
from agentspec.engine.draft.backbone import Block, block_table, scratch
from agentspec.engine.draft.base import DraftView, Observed, Proposal
from agentspec.engine.draft.block import BlockDrafter, BlockOptions
from agentspec.engine.draft.load import load_block
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.exact_runner import ExactRunner, Unavailable
from agentspec.engine.model.weights import open_checkpoint
from agentspec.engine.runner import Runner
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings
from tests.engine.draft import blockworld as world

LENGTH = 37
KINDS: dict[str, dict[str, Any]] = {
    "dspark": {},
    "qwen3": {"kind": "qwen3"},
    "gated": {"markov_head_type": "gated"},
    "rnn": {"markov_head_type": "rnn", "kind": "qwen3"},
    "dflash": {
        "markov_rank": 0,
        "enable_confidence_head": False,
        "sample_from_anchor": False,
    },
    "jetspec": {"causal": True, "markov_rank": 0, "confidence_head_with_markov": False},
}


def settings(dtype: str) -> EngineSettings:
    return EngineSettings(dtype=dtype, kv_tokens=512, context_tokens=256, threads=1, page_tokens=16)


@pytest.fixture(scope="module")
def target(tmp_path_factory):
    return world.write_target(tmp_path_factory.mktemp("target"))


@pytest.fixture(scope="module", params=["torch", "int8"])
def runner(request, target):
    if request.param == "torch":
        return Runner.load(settings("fp32"), target)
    try:
        return ExactRunner.load(settings("int8"), target)
    except Unavailable as error:
        pytest.skip(str(error))


def facts(runner) -> TargetFacts:
    return TargetFacts(config=runner.model.config, format="fp32")


def load(path, runner, **options) -> BlockDrafter:
    options = {"branches": 1} | options
    return load_block(path, runner, facts(runner), options=BlockOptions(**options))


def text(length: int = LENGTH, seed: int = 5) -> list[int]:
    return np.random.default_rng(seed).integers(0, world.VOCAB, length).tolist()


def features_of(runner, taps, ids) -> torch.Tensor:
    """[T, A*E] of all of ``ids``."""
    runner.set_taps(taps)
    pages = list(range(-(-len(ids) // 16)))
    features = runner.forward([Span(list(ids), 0, pages, [len(ids) - 1])]).features
    assert features is not None
    return features.float().clone()


def view_of(ids, pages, epochs, **params) -> DraftView:
    sampling = SamplingParams(**({"temperature": 0.0} | params))
    return DraftView(1, "s", None, list(ids), len(ids), sampling, pages=pages, page_epochs=epochs)


def proposal_of(drafter, runner, ids, *, limit=16, pieces=1, start=0):
    """What is drafted behind ``ids`` when the features before the last one are told in pieces."""
    features = features_of(runner, drafter.taps, ids)[: len(ids) - 1]
    pages = list(range(20, 0, -1))[: -(-len(ids) // 16)]
    view = view_of(ids, [], [1] * 64)
    drafter.open(view)
    view.pages = pages
    at = start
    for part in features[start:].chunk(pieces):
        drafter.observe([Observed(view, at, part)])
        at += len(part)
    (proposal,) = drafter.propose([view], [limit])
    drafter.close(view)
    return proposal


def slow(raw, tensors, target, **changes) -> world.SlowDraft:
    checkpoint = open_checkpoint(target)
    embedding = checkpoint.read("model.embed_tokens.weight")
    return world.SlowDraft(raw | changes, tensors, embedding, checkpoint.read("lm_head.weight"))


@pytest.mark.parametrize("kind", KINDS)
def test_hidden_states_and_tokens(kind, runner, target, tmp_path):
    raw = world.draft_config(**KINDS[kind])
    tensors = world.draft_tensors(raw)
    drafter = load(world.write_draft(tmp_path, raw, tensors), runner, candidates=96, bits=8)
    ids = text()
    features = features_of(runner, drafter.taps, ids)[:-1]
    truth = slow(raw, tensors, target)
    expected = truth.hidden(features, ids[-1], LENGTH - 1)
    proposal = proposal_of(drafter, runner, ids, pieces=3)
    context = list(range(20, 0, -1))[: -(-LENGTH // 16)]
    block = Block(
        block_table(context, 0, LENGTH - 1, scratch(drafter._backbone.num_pages, 0)),
        LENGTH - 1,
        LENGTH - 1,
        [ids[-1]] + [world.MASK] * (raw["block_size"] - 1),
        range(raw["block_size"]),
    )
    hidden, logits = (torch.from_numpy(a).double() for a in drafter._backbone.run([block]))
    tokens, confidences = truth.greedy(features, ids[-1], LENGTH - 1)
    if runner.exact:
        assert torch.cosine_similarity(hidden, expected).min() > 0.99
        assert torch.cosine_similarity(logits, expected @ truth.head.T).min() > 0.99
        assert len(proposal) == len(tokens)
        return
    torch.testing.assert_close(hidden, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(logits, expected @ truth.head.T, rtol=1e-4, atol=1e-4)
    assert list(proposal.tokens) == tokens
    if confidences:
        assert proposal.confidence == pytest.approx(confidences, abs=0.02)


def test_an_off_by_one_in_layers_or_positions_is_seen(target, tmp_path):
    """The parity above is sharp: the two classic mistakes move what it compares."""
    runner = Runner.load(settings("fp32"), target)
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    drafter = load(world.write_draft(tmp_path, raw, tensors), runner)
    ids, truth = text(), slow(raw, tensors, target)
    right = truth.hidden(features_of(runner, (0, 2), ids)[:-1], ids[-1], LENGTH - 1)
    layers = truth.hidden(features_of(runner, (1, 3), ids)[:-1], ids[-1], LENGTH - 1)
    anchor = truth.hidden(features_of(runner, (0, 2), ids)[:-1], ids[-1], LENGTH)
    early = truth.hidden(features_of(runner, (0, 2), ids)[:-2], ids[-1], LENGTH - 2)
    for wrong in (layers, anchor, early):
        assert (wrong - right).abs().max() > 0.01, "ten times what parity allows"
    assert drafter.taps == (0, 2)


@pytest.mark.parametrize("kind", ["dspark", "qwen3", "jetspec"])
def test_company_pieces_and_places_change_no_bit(kind, target, tmp_path):
    try:
        runner = ExactRunner.load(settings("int8"), target)
    except Unavailable as error:
        pytest.skip(str(error))
    raw = world.draft_config(**KINDS[kind])
    drafter = load(world.write_draft(tmp_path, raw, world.draft_tensors(raw)), runner)
    texts = [text(length, seed=length) for length in (3, 17, 33, 70)]
    alone = [proposal_of(drafter, runner, ids) for ids in texts]
    assert [proposal_of(drafter, runner, ids, pieces=4) for ids in texts] == alone
    views, seen, free = [], [], 0
    for number, ids in enumerate(texts):
        pages = list(range(free, free + -(-len(ids) // 16)))
        free += len(pages)
        view = view_of(ids, [], [1] * 64)
        view.sequence_id = number
        drafter.open(view)
        view.pages = pages
        views.append(view)
        features = features_of(runner, drafter.taps, ids)[:-1]
        seen.append(Observed(view, 0, features))
    drafter.observe(seen)
    assert drafter.propose(views, [16] * 4) == alone
    assert drafter.propose(views, [16] * 4) == alone, "proposals change nothing"


def test_a_hit_with_the_plane_is_the_whole_context(runner, target, tmp_path):
    raw = world.draft_config()
    drafter = load(world.write_draft(tmp_path, raw, world.draft_tensors(raw)), runner)
    ids = text(50)
    whole = proposal_of(drafter, runner, ids)
    pages = list(range(20, 0, -1))[:4]
    again = view_of(ids, pages[:3], [1] * 64)
    drafter.open(again)
    again.pages = pages
    features = features_of(runner, drafter.taps, ids)[48:49]
    drafter.observe([Observed(again, 48, features)])
    (found,) = drafter.propose([again], [16])
    assert found.tokens == whole.tokens
    assert found.confidence == whole.confidence or not runner.exact
    drafter.close(again)

    stale = view_of(ids, pages[:3], [1] * 20 + [2] + [1] * 43)
    drafter.open(stale)
    stale.pages = pages
    drafter.observe([Observed(stale, 48, features)])
    (partly,) = drafter.propose([stale], [16])
    assert len(partly) == 5
    moved = max(abs(a - b) for a, b in zip(partly.confidence, whole.confidence, strict=True))
    assert moved > 0.001, "the first page was given out again: one page less"


def test_without_the_plane_nothing_is_drafted_before_a_page_is_known(runner, target, tmp_path):
    raw = world.draft_config()
    drafter = load(world.write_draft(tmp_path, raw, world.draft_tensors(raw)), runner)
    ids = text(60)
    assert len(proposal_of(drafter, runner, ids[:60], start=48)) == 0
    known = proposal_of(drafter, runner, ids, start=32)
    assert len(known) == 5
    assert known != proposal_of(drafter, runner, ids)


def test_a_context_from_the_middle_is_turned_by_true_positions(target, tmp_path):
    """Attention sees positions only through their distance, so a text's end, wherever it stands,
    drafts the same; a wrong turn of the block against its context would show."""
    runner = Runner.load(settings("fp32"), target)
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    drafter = load(world.write_draft(tmp_path, raw, tensors), runner)
    ids = text(60)
    features = features_of(runner, drafter.taps, ids)[32:-1]
    tokens, _ = slow(raw, tensors, target).greedy(features, ids[-1], len(features))
    assert list(proposal_of(drafter, runner, ids, start=32).tokens) == tokens


@pytest.mark.parametrize("kind", ["dspark", "dflash"])
def test_limits_cut_a_proposal_and_change_nothing_else(kind, runner, target, tmp_path):
    raw = world.draft_config(**KINDS[kind])
    drafter = load(world.write_draft(tmp_path, raw, world.draft_tensors(raw)), runner)
    whole = proposal_of(drafter, runner, text())
    assert len(whole) == raw["block_size"] - (kind == "dflash")
    for limit in range(1, 5):
        assert proposal_of(drafter, runner, text(), limit=limit).tokens == whole.tokens[:limit]


@pytest.mark.parametrize("forced", ["anchor", "block"])
@pytest.mark.parametrize("kind", ["dspark", "rnn", "jetspec"])
def test_behind_anothers_tokens_the_last_of_them_is_the_anchor(
    kind, forced, runner, target, tmp_path
):
    """Its own position, the token before it for the Markov head, and no features since the text."""
    raw = world.draft_config(**KINDS[kind])
    tensors = world.draft_tensors(raw)
    folder = world.write_draft(tmp_path, raw, tensors)
    drafter = load(folder, runner, candidates=96, branches=1, forced=forced)
    ids, head = text(), (7, 31, 55)
    features = features_of(runner, drafter.taps, ids)[: LENGTH - 1]
    view = view_of(ids, [], [1] * 64)
    drafter.open(view)
    view.pages = list(range(20, 0, -1))[: -(-LENGTH // 16)]
    drafter.observe([Observed(view, 0, features)])
    (first,) = drafter.propose([view], [16])
    told = Proposal(head, ("other",) * 3, (0.9,) * 3)
    (behind,) = drafter.propose_behind([view], [told], [16])
    assert drafter.propose([view], [16]) == [first], "nothing has changed"
    block, position = (
        (head[-1:], LENGTH + 2) if forced == "anchor" else ((ids[-1], *head), LENGTH - 1)
    )
    expected, _ = slow(raw, tensors, target).greedy(features, block, position)
    assert len(behind) == len(expected) == raw["block_size"] - len(block) + 1
    assert behind.sources == ("dspark" if kind == "rnn" else kind,) * len(behind)
    same = sum(a == b for a, b in zip(behind.tokens, expected, strict=True))
    assert same == len(expected) or (runner.exact and same >= 1)
    assert drafter.propose_behind([view], [told], [1])[0].tokens == behind.tokens[:1]


def test_what_waits_is_written_before_the_block_in_one_call(target, tmp_path):
    """The same bits as when its K and V were made in a call of their own."""
    try:
        runner = ExactRunner.load(settings("int8"), target)
    except Unavailable as error:
        pytest.skip(str(error))
    raw = world.draft_config()
    drafter = load(world.write_draft(tmp_path, raw, world.draft_tensors(raw)), runner)
    ids = text(53)
    features = features_of(runner, drafter.taps, ids)[:-1]

    def drafted(pieces: list[int], asked: bool) -> Proposal:
        view = view_of(ids, [], [1] * 64)
        drafter.open(view)
        view.pages = [9, 4, 7, 2]
        at, found = 0, Proposal()
        for count in pieces:
            drafter.observe([Observed(view, at, features[at : at + count])])
            at += count
            if asked:
                view.tokens = ids[: at + 1]
                (found,) = drafter.propose([view], [16])
        if not asked:
            drafter._write(drafter._waiting.due([view.sequence_id]))
            (found,) = drafter.propose([view], [16])
        drafter.close(view)
        return found

    whole = drafted([52], asked=False)
    assert len(whole) == raw["block_size"]
    assert drafted([30, 3, 14, 5], asked=True) == whole
    assert drafted([17, 35], asked=True) == whole


def test_four_bits_draft_nearly_the_same(target, tmp_path):
    """Beside a slow version of what the codes stand for; ``fc`` keeps its 8 bits."""
    try:
        runner = ExactRunner.load(settings("int8"), target)
    except Unavailable as error:
        pytest.skip(str(error))
    raw = world.draft_config()
    tensors = world.draft_tensors(raw)
    drafter = load(world.write_draft(tmp_path, raw, tensors), runner, bits=4, candidates=96)
    truth = slow(raw, rounded(tensors), target)
    truth.head = torch.from_numpy(quantize4(truth.head.numpy()).dense()).double()
    ids = text()
    features = features_of(runner, drafter.taps, ids)[:-1]
    view = view_of(ids, [], [1] * 64)
    drafter.open(view)
    view.pages = [3, 2, 1]
    drafter.observe([Observed(view, 0, features)])
    assert len(drafter.propose([view], [16])[0]) == raw["block_size"]
    drafter.close(view)
    block = Block(
        block_table([3, 2, 1], 0, LENGTH - 1, scratch(drafter._backbone.num_pages, 0)),
        LENGTH - 1,
        LENGTH - 1,
        [ids[-1]] + [world.MASK] * (raw["block_size"] - 1),
        range(raw["block_size"]),
    )
    expected = truth.hidden(features, ids[-1], LENGTH - 1)
    hidden, logits = (torch.from_numpy(a).double() for a in drafter._backbone.run([block]))
    assert torch.cosine_similarity(hidden, expected).min() > 0.99
    assert torch.cosine_similarity(logits, expected @ truth.head.T).min() > 0.99
    plain = slow(raw, tensors, target).hidden(features, ids[-1], LENGTH - 1)
    assert torch.cosine_similarity(hidden, plain).min() < 0.999, "it is not of 8 bits"


def rounded(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The layers' matrices as four bits hold them."""
    return {
        name: torch.from_numpy(quantize4(tensor.numpy()).dense())
        if name.startswith("layers.") and tensor.ndim == 2
        else tensor
        for name, tensor in tensors.items()
    }
