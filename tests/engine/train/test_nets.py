"""Rows, loss and every gradient of the five methods against a slow version of the formulas."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agentspec.engine.train.batches import ALL, Columns, Drawn, assemble, weigh
from agentspec.engine.train.losses import Head
from agentspec.engine.train.methods import Loss
from agentspec.engine.train.nets import build_net
from agentspec.engine.train.objective import outcome
from agentspec.engine.train.spec import DraftSpec
from tests.engine.train import slow
from tests.engine.train.worlds import Memory, spec, tables

CASES = {
    "dspark": spec("dspark"),
    "dspark-gated": spec("dspark", markov_head_type="gated"),
    "dspark-rnn": spec("dspark", markov_head_type="rnn"),
    "dspark-plain-confidence": spec("dspark", confidence_with_markov=False),
    "dspark-qwen3": spec("dspark", "qwen3"),
    "dflash": spec("dflash"),
    "jetspec": spec("jetspec"),
    "eagle3": spec("eagle3"),
    "eagle3-qwen3": spec("eagle3", "qwen3"),
    "mtp": spec("mtp"),
}
LOSS = Loss(
    ce=0.3, l1=0.9, soft=0.4, confidence=0.7, decay=4.0, geometric=False, per_sequence=False
)
LENGTHS = [(3, 11), (2, 7)]
ANCHORS = [[3, 5, 9], [2, 4]]


def slow_loss(
    one: DraftSpec, p: slow.P, source: Memory, emb: Tensor, head: Tensor, loss: Loss
) -> Tensor:
    """The step's loss over all anchors, row by row; also where the sample ends early."""
    total, divisor = torch.zeros((), dtype=torch.float64), 0.0
    weights = [float(torch.tensor(-k / 4.0).double().exp()) for k in range(one.proposals)]
    for entry, anchors in zip(source.entries, ANCHORS, strict=True):
        ids_tensor, found = source.read(entry)
        ids, last = ids_tensor.tolist(), found.last.double()
        features = last if one.method == "mtp" else found.features.double()
        for anchor in anchors:
            rows = slow.chain_hidden if one.chain else slow.block_hidden
            hidden = rows(p, one, ids, features, anchor, emb)
            count = min(one.proposals, len(ids) - anchor - 1)
            previous = [ids[anchor + k] for k in range(count)]
            markov = None
            if one.markov_rank:
                markov = slow.markov_inputs(p, one, previous, hidden[:count])
            for k in range(count):
                logits = head @ hidden[k]
                if markov is not None:
                    logits = logits + p["markov_head.markov_w2.weight"] @ markov[k]
                target = head @ last[anchor + k]
                ce, l1, soft = slow.row_terms(logits, target, ids[anchor + 1 + k])
                term = loss.ce * ce + loss.l1 * l1 + loss.soft * soft
                if one.confidence_head:
                    e = p["markov_head.markov_w1.weight"][previous[k]]
                    parts = (hidden[k], e) if one.confidence_with_markov else (hidden[k],)
                    proj = p["confidence_head.proj.weight"][0] @ torch.cat(parts)
                    c = 1 / (1 + (-(proj + p["confidence_head.proj.bias"][0])).exp())
                    label = (1 - l1 / 2).detach()
                    bce = -(label * c.log() + (1 - label) * (1 - c).log())
                    term = term + loss.confidence * bce
                total, divisor = total + weights[k] * term, divisor + weights[k]
    return total / divisor


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradients_are_those_of_the_formulas(name: str):
    torch.manual_seed(1)
    one = CASES[name]
    net = build_net(one).double()
    with torch.no_grad():
        for weight in net.parameters():
            weight += torch.randn_like(weight) * 0.3
    source = Memory(LENGTHS, taps=3)
    emb, head = tables()
    drawn = [
        Drawn(entry, torch.tensor(at)) for entry, at in zip(source.entries, ANCHORS, strict=True)
    ]
    batch = assemble(
        source, drawn, one.proposals, columns=Columns(last=one.method == "mtp"), dtype=torch.float64
    )
    scales = weigh(drawn, LOSS, one.proposals)
    scale = torch.cat(
        [torch.full((len(d.anchors),), scales[d.entry.id], dtype=torch.float64) for d in drawn]
    )
    fast = outcome(net, batch, emb, Head(head, chunk=5), LOSS, scale)
    fast.loss.backward()

    p = {name: w.detach().clone().requires_grad_() for name, w in net.named_parameters()}
    reference = slow_loss(one, p, source, emb, head, LOSS)
    reference.backward()
    torch.testing.assert_close(fast.loss, reference, rtol=1e-9, atol=1e-12)
    for name, weight in net.named_parameters():
        assert weight.grad is not None and p[name].grad is not None, name
        torch.testing.assert_close(
            weight.grad, p[name].grad, rtol=1e-7, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}"
        )


def test_a_block_sees_no_feature_of_its_anchor_or_behind():
    """The anchor's own features don't exist when it drafts; those before it matter."""
    one = CASES["dspark"]
    torch.manual_seed(0)
    net = build_net(one).double()
    source, (emb, _) = Memory([(2, 9)]), tables()
    drawn = [Drawn(source.entries[0], torch.tensor([4]))]

    def hidden() -> Tensor:
        batch = assemble(source, drawn, 4, columns=ALL, dtype=torch.float64)
        return net(batch, emb).hidden.detach()

    before = hidden()
    ids, found = source.held["s0"]
    found.features[4:] += 1.0
    torch.testing.assert_close(hidden(), before, rtol=0, atol=0)
    found.features[3] += 1.0
    assert (hidden() - before).abs().max() > 1e-6
