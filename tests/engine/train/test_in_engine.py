"""A draft made here, run by the engine: it proposes what the trained module proposes."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentspec.engine.core import Engine
from agentspec.engine.draft.block import BlockOptions
from agentspec.engine.draft.load import load_draft
from agentspec.engine.draft.target import TargetFacts
from agentspec.engine.request import GenerationRequest
from agentspec.engine.runners import open_runner
from agentspec.engine.sampling import SamplingParams
from agentspec.engine.train.batches import Columns
from agentspec.engine.train.caching import cache
from agentspec.engine.train.config import DraftToml
from agentspec.engine.train.data import Data, read_samples
from agentspec.engine.train.evaluate import evaluate
from agentspec.engine.train.export import Draft, read_draft, write_deepspec, write_speculators
from agentspec.engine.train.methods import spec_of
from agentspec.engine.train.nets.base import Batch
from agentspec.engine.train.target import Target
from agentspec.engine.train.trainer import begin, train
from tests.engine.core.toy import FLAT, ToyClock

Write = Callable[..., DraftToml]
SHORT = 160


class Spy:
    """A drafter that keeps what it was asked behind and what it proposed."""

    def __init__(self, drafter: Any):
        self._drafter = drafter
        self.seen: list[tuple[list[int], tuple[int, ...]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def propose(self, views, limits):
        found = self._drafter.propose(views, limits)
        for view, one in zip(views, found, strict=True):
            if len(view.tokens) > view.prompt_length:  # Else there is no feature yet.
                self.seen.append((list(view.tokens), one.tokens))
        return found


def proposals_in_engine(toml: DraftToml, target: Target, folder: Path) -> Spy:
    """Three prompts answered greedily, everything verified."""
    runner = open_runner(target.settings, target.path)
    shape = target.checkpoint.config
    facts = TargetFacts(config=shape, format=target.id.format)
    spy = Spy(
        load_draft(folder, runner, facts, options=BlockOptions(candidates=shape.vocab, branches=1))
    )
    engine = Engine(
        runner,
        [spy],
        curve=FLAT,
        settings=target.settings,
        token_bytes=target.tokenizer.token_bytes,
        clock=ToyClock(),
    )
    for sample in read_samples(toml, target)[:3]:
        engine.add(
            GenerationRequest(
                id=sample.id,
                prompt=sample.ids[: sample.prompt_tokens],
                max_tokens=sample.answer_tokens,
                sampling=SamplingParams(temperature=0.0),
                sources=(spy.name,),
                cache_scope=sample.id,
            )
        )
    while engine.has_work():
        engine.step()
    return spy


def proposal_of_module(draft: Draft, target: Target, ids: list[int]) -> list[int]:
    """Greedy, token by token, behind the anchor ``ids[-1]``, each row seeing those before."""
    net, spec = draft.net().eval(), draft.spec
    (found,) = target.features([ids], 64)
    count, length = spec.proposals, len(ids)
    previous = torch.zeros(1, count, dtype=torch.int64)
    previous[0, 0] = ids[-1]
    batch = Batch(
        ids=torch.tensor(ids),
        positions=torch.arange(length),
        owner=torch.zeros(length, dtype=torch.int64),
        features=Columns.of(target.layers, spec).choose(found).float(),
        last=found.last.float(),
        anchors=torch.tensor([length - 1]),
        labels=torch.zeros_like(previous),
        previous=previous,
        supervised=torch.ones(1, count, dtype=torch.bool),
    )
    chosen: list[int] = []
    with torch.no_grad():
        for k in range(count):
            rows = net(batch, target.tables.embedding)
            head = target.tables.head
            logits = (head if net.token_ids is None else head[net.token_ids]) @ rows.hidden[0, k]
            if rows.markov is not None and net.w2 is not None:
                logits = logits + net.w2 @ rows.markov[0, k]
            best = int(logits.argmax())
            chosen.append(best if net.token_ids is None else int(net.token_ids[best]))
            if k + 1 < count:
                previous[0, k + 1] = chosen[-1]
    return chosen


@pytest.mark.parametrize(
    ("method", "form", "changed"),
    [
        ("dspark", "bf16", {}),
        ("dspark", "int8", {"markov_head_type": "gated"}),
        ("dspark", "speculators", {"markov_head_type": "rnn"}),
        ("dspark", "int8", {"vocabulary": SHORT, "layers": [0, 1, 2], "target_layers": [0, 2]}),
        ("dspark", "speculators", {"vocabulary": SHORT}),
        ("dflash", "bf16", {}),
        ("dflash", "speculators", {"vocabulary": SHORT}),
        ("jetspec", "int8", {"vocabulary": SHORT}),
        ("eagle3", "bf16", {}),
        ("eagle3", "int8", {"vocabulary": SHORT}),
        ("eagle3", "speculators", {"vocabulary": SHORT}),
        ("mtp", "bf16", {"vocabulary": SHORT}),
    ],
)
def test_the_engine_proposes_what_the_module_proposes(
    write: Write, tmp_path: Path, method: str, form: str, changed: dict[str, Any]
):
    """Random weights, so that every place proposes something else; as exported, in three forms."""
    toml = write(method=method, **changed)
    if "layers" in changed:
        shutil.rmtree(toml.features)
        cache(toml)
    target = Target.open(toml)
    data = Data.open(toml, target)
    mask = data.mask_token(target)
    spec = spec_of(toml.draft, target.checkpoint.config, target.layers, mask)
    net = begin(toml, target, spec)
    if spec.draft_vocab is not None:
        net.propose_only(data.commonest(spec.draft_vocab, target.tokenizer.eos_ids))
    with torch.no_grad():
        for weight in net.parameters():
            weight += torch.randn_like(weight) * 0.2
    made, folder = Draft.of(net, target.id, 0), tmp_path / "made"
    if form == "speculators":
        write_speculators(folder, made, target.tables.head)
    else:
        write_deepspec(folder, made, int8=form == "int8")
    spy = proposals_in_engine(toml, target, folder)
    read = read_draft(folder)
    pairs = [
        (ours, theirs)
        for ids, proposed in spy.seen[::3]
        for ours, theirs in zip(proposal_of_module(read, target, ids), proposed, strict=False)
    ]
    assert len(pairs) > 60 and len({theirs for _, theirs in pairs}) > 10
    # Features are kept in 16 bits for training and in 32 for drafting: near ties may fall apart.
    assert sum(ours == theirs for ours, theirs in pairs) > 0.95 * len(pairs)


def test_generating_says_the_same_text(write: Write):
    toml = write(epochs=20, held_out=0, learning_rate=2e-2, anchors=24, ce=1.0)
    train(toml)
    engine = evaluate(toml, on="train", most=3, through_engine=True)["engine"]
    assert engine["same_text"] == "3/3"
    assert engine["plain"]["drafted"] == 0 and engine["plain"]["accepted_length"] == 1
    assert engine["draft"]["drafted"] > 0
    assert engine["draft"]["tokens"] == engine["plain"]["tokens"]
