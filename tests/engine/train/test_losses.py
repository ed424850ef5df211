"""The chunked loss: numbers worked out by hand, every chunk size, and its gradient by autograd."""

from __future__ import annotations

import math

import pytest
import torch

from agentspec.engine.train.config import LossConfig
from agentspec.engine.train.losses import Coefficients, Head, head_loss
from agentspec.engine.train.methods import loss_of


def row(ce: float = 0, l1: float = 0, soft: float = 0, rows: int = 1) -> Coefficients:
    return Coefficients(*(torch.full((rows,), value).double() for value in (ce, l1, soft)))


def by_hand(coefficients: Coefficients):
    """Draft (3/4, 1/4), target (1/2, 1/2), the true token is the second."""
    head = Head(torch.eye(2).double())
    hidden = torch.tensor([[math.log(3.0), 0.0]]).double()
    target = torch.zeros(1, 2).double()
    return head_loss(
        head, hidden, None, None, target, torch.tensor([0]), torch.tensor([1]), coefficients
    )


@pytest.mark.parametrize(
    ("coefficients", "value"),
    [
        (row(ce=1), math.log(4)),
        (row(l1=1), 0.5),
        (row(soft=1), -0.5 * math.log(0.75) - 0.5 * math.log(0.25)),
        (row(ce=0.1, l1=0.9), 0.1 * math.log(4) + 0.45),
    ],
)
def test_numbers_by_hand(coefficients: Coefficients, value: float):
    found = by_hand(coefficients)
    assert float(found.loss) == pytest.approx(value, rel=1e-7)
    assert float(found.overlap[0]) == pytest.approx(0.75)
    assert not bool(found.hit[0])


@pytest.mark.parametrize("chunk", [1, 3, 100])
@pytest.mark.parametrize("with_markov", [True, False])
def test_loss_and_gradients_are_autograds(chunk: int, with_markov: bool):
    draw = torch.Generator().manual_seed(5)

    def rand(*shape: int, grad: bool = False) -> torch.Tensor:
        made = torch.randn(*shape, generator=draw, dtype=torch.float64)
        return made.requires_grad_(grad)

    weight, targets = rand(11, 6), rand(4, 6)
    hidden = rand(9, 6, grad=True)
    markov = rand(9, 3, grad=True) if with_markov else None
    w2 = rand(11, 3, grad=True) if with_markov else None
    target_rows = torch.tensor([3, 0, 0, 2, 1, 3, 3, 2, 0])
    labels = torch.randint(0, 11, (9,), generator=draw)
    ce, l1, soft = (torch.rand(9, generator=draw, dtype=torch.float64) for _ in range(3))
    leaves = [x for x in (hidden, markov, w2) if x is not None]

    logits = hidden @ weight.T
    if markov is not None and w2 is not None:
        logits = logits + markov @ w2.T
    t = (targets @ weight.T).softmax(-1)[target_rows]
    d = logits.softmax(-1)
    true = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    expected = (ce * true + l1 * (d - t).abs().sum(-1) - soft * (t * d.log()).sum(-1)).sum()
    wanted = torch.autograd.grad(expected * 1.7, leaves)

    found = head_loss(
        Head(weight, chunk), hidden, markov, w2, targets, target_rows, labels,
        Coefficients(ce, l1, soft),
    )  # fmt: skip
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(found.overlap, (1 - (d - t).abs().sum(-1) / 2).detach())
    assert found.hit.tolist() == (logits.argmax(-1) == labels).tolist()
    for mine, theirs in zip(torch.autograd.grad(found.loss * 1.7, leaves), wanted, strict=True):
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("chunk", [1, 4])
def test_of_a_shortlist_the_terms_are_those_of_a_draft_that_gives_all_else_no_chance(chunk: int):
    """By the whole vocabulary: what isn't listed has draft chance 0, the target its own."""
    draw = torch.Generator().manual_seed(8)
    whole, targets, hidden = (
        torch.randn(n, 6, generator=draw, dtype=torch.float64) for n in (11, 4, 7)
    )
    hidden.requires_grad_()
    ids = torch.tensor([1, 4, 5, 9])
    labels = torch.tensor([4, 0, 9, 5, 10, 1, 4])
    target_rows = torch.tensor([3, 0, 0, 2, 1, 3, 3])
    ce, l1, soft = (torch.rand(7, generator=draw, dtype=torch.float64) for _ in range(3))

    t = (targets @ whole.T).softmax(-1)[target_rows]
    nothing = torch.full((7, 11), -torch.inf, dtype=torch.float64)
    logits = nothing.index_copy(1, ids, hidden @ whole[ids].T)
    d = logits.softmax(-1)
    listed = torch.isin(labels, ids)
    true = -(d.gather(1, labels[:, None])[:, 0].where(listed, torch.ones(()).double()).log())
    cross = -(t[:, ids] * d[:, ids].log()).sum(-1)
    far = (d - t).abs().sum(-1)
    expected = (ce * true + l1 * far + soft * cross).sum()
    (wanted,) = torch.autograd.grad(expected, hidden)

    found = head_loss(
        Head.of(whole, chunk, ids), hidden, None, None, targets, target_rows, labels,
        Coefficients(ce, l1, soft),
    )  # fmt: skip
    torch.testing.assert_close(found.loss, expected)
    torch.testing.assert_close(found.overlap, (1 - far / 2).detach())
    assert found.hit.tolist() == (d.argmax(-1) == labels).tolist()
    torch.testing.assert_close(torch.autograd.grad(found.loss, hidden)[0], wanted)


def test_no_target_is_computed_where_no_term_needs_it():
    head, hidden = Head(torch.eye(2).double()), torch.zeros(1, 2).double()
    nowhere = torch.full((1, 2), torch.nan).double()
    found = head_loss(
        head, hidden, None, None, nowhere, torch.tensor([0]), torch.tensor([0]), row(ce=1),
        measure=False,
    )  # fmt: skip
    assert float(found.loss) == pytest.approx(math.log(2))
    assert float(found.overlap[0]) == 0


def test_the_methods_losses_are_the_published_ones():
    dspark = loss_of("dspark", LossConfig())
    assert (dspark.ce, dspark.l1, dspark.confidence) == (0.1, 0.9, 1.0)
    assert dspark.weights(3) == pytest.approx([1, math.exp(-0.25), math.exp(-0.5)])
    dflash = loss_of("dflash", LossConfig())
    assert (dflash.ce, dflash.l1, dflash.soft, dflash.confidence) == (1, 0, 0, 0)
    eagle = loss_of("eagle3", LossConfig())
    assert eagle.soft == 1 and eagle.per_sequence
    assert eagle.weights(3) == pytest.approx([1, 0.8, 0.64])
    changed = loss_of("dspark", LossConfig(ce=0.5, mean="sequence", decay=2.0))
    assert changed.ce == 0.5 and changed.per_sequence
    assert changed.weights(2)[1] == pytest.approx(math.exp(-0.5))
