"""One suite over every draft source: the text is plain decoding's, whoever drafts.

Byte for byte, greedy and seeded, in batches of 1, 3 and 8, masked and not, on the exact kernels.
(Unseeded, by exact enumeration: ``test_law.py``, ``test_block_law.py``.) A broken rule of
acceptance changes a text here; an anchor or a layer that is one off is no fault of the text, so
every draft of a trained method is compared with what its slow version says at that place.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agentspec.engine import verify as rule
from agentspec.engine.batch import Span
from agentspec.engine.draft import create
from agentspec.engine.draft.base import Drafter, DraftView, Proposal
from agentspec.engine.draft.block import BlockOptions
from agentspec.engine.draft.draft_model import DraftModelDrafter
from agentspec.engine.draft.load import load_block
from agentspec.engine.draft.load_steps import load_steps
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.weights import open_checkpoint
from agentspec.engine.request import GenerationRequest
from agentspec.engine.runner import Runner
from agentspec.settings import EngineSettings
from tests.engine.core.toy import RecordingDrafter
from tests.engine.core.trees import by_survival
from tests.engine.draft import blockworld, stepworld
from tests.engine.draft.test_block_lossless import (
    GRAMMARS,
    KINDS,
    Told,
    drafter_of,
    generate,
    open_target,
    requests_of,
)

SAMPLINGS = {"greedy": {"temperature": 0.0}, "seeded": {"temperature": 0.9, "seed": 77}}
LAYERS = blockworld.LAYERS
MASKED = ("free", "words")


class Guesser(RecordingDrafter):
    """Trees of tokens that the text decides, right or wrong; ``right``: whole texts that it knows,
    whose continuations lie behind wrong siblings."""

    right: Sequence[Sequence[int]] = ()

    def one(self, view: DraftView, limit: int) -> Proposal:
        known = next((t for t in self.right if list(t[: len(view.tokens)]) == view.tokens), [])
        nodes: list[tuple[int, int, float]] = []
        parent = -1
        for depth in range(max(1, limit // 3)):
            at = len(view.tokens) + depth
            token = known[at] if at < len(known) else (7 * view.tokens[-1] + depth) % 90
            nodes.append(((token + 1) % 90, parent, 0.5))
            nodes.append(((token + 2) % 90, len(nodes) - 1, 0.4))
            nodes.append((token, parent, 0.45))
            parent = len(nodes) - 1
        return by_survival(self.name, nodes).cut(limit)


def _renamed(drafter: Any) -> Drafter:
    drafter.name = "draft"
    return drafter


def _block(kind: str, **options: Any) -> Callable[..., Drafter]:
    return lambda runner, folder, path: drafter_of(kind, runner, path, **options)


def _jetspec_tree(runner: ExactRunner, folder: Path, path: Path) -> Drafter:
    raw = blockworld.draft_config(causal=True, markov_rank=0, enable_confidence_head=False)
    blockworld.write_draft(path, raw, blockworld.draft_tensors(raw))
    facts = TargetFacts(config=runner.model.config, format="int8")
    drafter = load_block(path, runner, facts, name="draft")
    assert drafter.config.method == "jetspec"
    return drafter


def _step(method: str, **changes: Any) -> Callable[..., Drafter]:
    def make(runner: ExactRunner, folder: Path, path: Path) -> Drafter:
        raw = stepworld.config(method, **changes)
        tensors = stepworld.tensors(method, raw["model_type"])
        if "draft_vocab_size" in raw:
            tensors |= stepworld.own_vocabulary(raw["draft_vocab_size"])
        facts = TargetFacts(config=runner.model.config, format="int8")
        return load_steps(
            blockworld.write_draft(path, raw, tensors),
            runner,
            facts,
            name="draft",
            min_survival=0.0,
        )

    return make


def _model(seed: int) -> Callable[..., Drafter]:
    def make(runner: ExactRunner, folder: Path, path: Path) -> Drafter:
        other = blockworld.write_target(path / "model", seed=seed, mixing=0.1)
        return DraftModelDrafter(open_target(other), name="draft", min_survival=0.0)

    return make


SOURCES: dict[str, Callable[..., Drafter]] = {
    "suffix": lambda *_: _renamed(create("suffix")),
    "suffix_tree": lambda *_: _renamed(create("suffix_tree", min_survival=0.0)),
    "ngram": lambda *_: _renamed(create("ngram", min_n=1)),
    "draft_model, itself": _model(seed=0),
    "draft_model, another": _model(seed=5),
    "eagle3": _step("eagle3"),
    "eagle3, own vocabulary": _step("eagle3", draft_vocab_size=48, kind="qwen3"),
    "mtp": _step("mtp"),
    "trees": lambda *_: Guesser("draft"),
    "jetspec, trees": _jetspec_tree,
    "dspark, four bits": _block("dspark", bits=4),
    **{kind: _block(kind) for kind in KINDS},
}


def asking(count: int, sampling: str, grammar: str, **options: Any) -> list[GenerationRequest]:
    asked = requests_of(count, SAMPLINGS[sampling], GRAMMARS[grammar], **options)
    for one in asked:
        one.max_tokens = 24
    return asked


@pytest.fixture(scope="module")
def target(tmp_path_factory) -> Path:
    return blockworld.write_target(tmp_path_factory.mktemp("target"), mixing=0.1)


@pytest.fixture(scope="module")
def plain(target):
    """The plain text of eight requests, each alone, by sampling and grammar; made when needed."""
    made: dict[tuple[str, str], list[Told]] = {}

    def of(sampling: str, grammar: str) -> list[Told]:
        if (sampling, grammar) not in made:
            runner = open_target(target)
            asked = asking(8, sampling, grammar, sources=())
            made[sampling, grammar] = [generate(runner, [], [one])[0] for one in asked]
        return made[sampling, grammar]

    return of


def texts(told: Sequence[Told]) -> list[tuple[str, str]]:
    return [(one.text, one.reason) for one in told]


def whole_texts(asked, told: Sequence[Told]) -> list[list[int]]:
    """Prompt and answer of each request as token ids."""
    answers = [[int(n) for n in re.findall(r"<(\d+)>", one.text)] for one in told]
    return [[*one.prompt, *answer] for one, answer in zip(asked, answers, strict=True)]


@pytest.mark.parametrize("grammar", MASKED)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("source", SOURCES)
def test_the_text_is_that_of_plain_decoding(source, sampling, grammar, target, plain, tmp_path):
    expected = plain(sampling, grammar)
    for batch in (1, 3, 8):
        runner = open_target(target)
        drafter = SOURCES[source](runner, target, tmp_path)
        asked = asking(batch, sampling, grammar)
        if isinstance(drafter, Guesser):
            drafter.right = whole_texts(asked, expected[:batch])
        told = generate(runner, [drafter], asked)
        assert texts(told) == texts(expected[:batch])
        drafted = sum(one.drafted for one in told)
        assert drafted > 0 or source in ("suffix", "suffix_tree", "ngram")
        if source == "draft_model, itself":
            assert sum(one.accepted for one in told) == drafted
        if source == "trees":
            assert sum(one.accepted for one in told) > 3 * batch


@pytest.mark.parametrize("grammar", MASKED)
@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("kind", ["good", "dspark"])
def test_a_block_behind_a_suffix_draft_keeps_the_text(
    kind, sampling, grammar, target, plain, tmp_path, monkeypatch
):
    """Forced spans, what the text said before, and behind it what the draft says."""
    runner = open_target(target)
    drafter: Any = drafter_of(kind, runner, tmp_path)
    behind, ask = 0, drafter.propose_behind

    def asked_behind(views, heads, limits):
        nonlocal behind
        tails = ask(views, heads, limits)
        behind += sum(map(len, tails))
        return tails

    monkeypatch.setattr(drafter, "propose_behind", asked_behind)
    asked = asking(8, sampling, grammar, sources=("suffix", "draft"))
    told = generate(runner, [create("suffix"), drafter], asked)
    assert texts(told) == texts(plain(sampling, grammar))
    assert behind > 0 or sampling == "seeded", "what is drawn hardly repeats itself"


@pytest.mark.parametrize("source", ["dspark", "eagle3", "mtp", "trees", "draft_model, another"])
def test_a_broken_rule_of_acceptance_changes_a_text(source, target, plain, tmp_path, monkeypatch):
    """Whatever is drafted stands."""
    monkeypatch.setattr(rule._Target, "test", lambda self, i, token, draft: None)
    monkeypatch.setattr(rule._Target, "pick", lambda self, i, proposal, nodes: (nodes[0], -1))
    runner = open_target(target)
    drafter = SOURCES[source](runner, target, tmp_path)
    told = generate(runner, [drafter], asking(3, "greedy", "free"))
    assert texts(told) != texts(plain("greedy", "free")[:3])


def test_a_jetspec_draft_is_a_tree(target, plain, tmp_path, monkeypatch):
    runner = open_target(target)
    drafter: Any = SOURCES["jetspec, trees"](runner, target, tmp_path)
    seen: list[Proposal] = []
    monkeypatch.setattr(drafter, "commit", lambda view, proposal, *_: seen.append(proposal))
    told = generate(runner, [drafter], asking(3, "greedy", "free"))
    assert texts(told) == texts(plain("greedy", "free")[:3])
    assert sum(proposal.parents is not None for proposal in seen) > 10


class Compared:
    """A drafter whose every draft is compared with its slow version's, at the same place of the
    text, over features of a pass of its own."""

    def __init__(self, inner: Any, slow: Callable[[list[int]], list[int]]):
        self.inner, self.slow = inner, slow
        self.name, self.taps = inner.name, inner.taps
        self.right = self.wrong = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def propose(self, views, limits):
        proposals = self.inner.propose(views, limits)
        for view, proposal in zip(views, proposals, strict=True):
            # Before the first pass nothing of the prompt is known.
            if len(proposal) >= 3 and len(view.tokens) > view.prompt_length:
                same = list(proposal.tokens[:3]) == self.slow(view.tokens)
                self.right, self.wrong = self.right + same, self.wrong + (not same)
        return proposals


def _features(runner: Runner, taps: Sequence[int], tokens: list[int]) -> torch.Tensor:
    """[T - 1, N]: of all tokens but the last, whose features a draft doesn't have."""
    runner.set_taps(taps)
    count = len(tokens) - 1
    pages = list(range(-(-count // 16)))
    features = runner.forward([Span(tokens[:-1], 0, pages, [])]).features
    assert features is not None
    return features


def _compared(method: str, target: Path, path: Path) -> tuple[Runner, Compared]:
    settings = EngineSettings(
        dtype="fp32", kv_tokens=2048, context_tokens=256, threads=1, page_tokens=16
    )
    runner, own = (Runner.load(settings, target) for _ in range(2))
    checkpoint = open_checkpoint(target)
    embedding, head, norm = (
        checkpoint.read(name)
        for name in ("model.embed_tokens.weight", "lm_head.weight", "model.norm.weight")
    )
    facts = TargetFacts(config=runner.model.config, format="fp32")
    if method == "dspark":  # without its Markov head, which looks at no feature
        raw = blockworld.draft_config(markov_rank=0, enable_confidence_head=False)
        tensors = blockworld.draft_tensors(raw)
        blockworld.write_draft(path, raw, tensors)
        options = BlockOptions(candidates=blockworld.VOCAB)
        drafter: Any = load_block(path, runner, facts, name="draft", options=options)
        block = blockworld.SlowDraft(raw, tensors, embedding, head)

        def slow(tokens: list[int]) -> list[int]:
            features = _features(own, raw["target_layer_ids"], tokens)
            return block.greedy(features, tokens[-1], len(tokens) - 1)[0][:3]
    else:
        raw = stepworld.config(method)
        tensors = stepworld.tensors(method)
        blockworld.write_draft(path, raw, tensors)
        drafter = load_steps(path, runner, facts, name="draft", min_survival=0.0)
        steps = stepworld.SlowSteps(raw, tensors, embedding, head, norm)

        def slow(tokens: list[int]) -> list[int]:
            features = _features(own, raw["target_layer_ids"], tokens)
            return steps.greedy(features, tokens, 3)[0]

    return runner, Compared(drafter, slow)


@pytest.mark.parametrize("fault", [None, "layer", "anchor", "features"])
@pytest.mark.parametrize("method", ["dspark", "eagle3", "mtp"])
def test_a_draft_stands_where_it_should(method, fault, target, tmp_path, monkeypatch):
    """With a layer, the anchor's position or the features one off the comparison fails: it can
    tell."""
    runner, drafter = _compared(method, target, tmp_path)
    if fault == "layer":
        drafter.taps = tuple((tap + 1) % LAYERS for tap in drafter.taps)
    if fault == "anchor":
        backbone = drafter.inner._backbone
        run = backbone.run

        def beside(asked, *more):
            return run([replace(one, position=one.position + 1) for one in asked], *more)

        monkeypatch.setattr(backbone, "run", beside)
    if fault == "features":
        honest = drafter.inner.observe

        def late(observed):
            for one in observed:
                one.features[1:] = one.features[:-1].clone()
            honest(observed)

        drafter.inner.observe = late
    asked = asking(2, "greedy", "free")
    for one in asked:
        one.max_tokens = 10
    generate(runner, [drafter], asked)
    assert drafter.right + drafter.wrong > 5
    assert (drafter.wrong == 0) == (fault is None)
