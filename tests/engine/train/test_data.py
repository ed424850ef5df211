"""What a step takes: anchors, packs, divisors, schedule, splits."""

from __future__ import annotations

import pytest
import torch

from agentspec.engine.train.batches import ALL, assemble, draw, every, packs, weigh
from agentspec.engine.train.dataset import Schedule, Split
from agentspec.engine.train.errors import TrainError
from agentspec.engine.train.feature_cache import Entry
from agentspec.engine.train.methods import Loss, spread_layers
from tests.engine.train.worlds import Memory

FLAT = {"ce": 1.0, "l1": 0.0, "soft": 0.0, "confidence": 0.0, "decay": 1.0, "geometric": True}


def test_anchors_are_answer_tokens_with_an_answer_token_behind():
    entry = Entry("x", 0, 0, tokens=10, prompt_tokens=4)
    assert every(entry).anchors.tolist() == [4, 5, 6, 7, 8]
    drawn = [tuple(draw(entry, 3, 1, "anchors", epoch).anchors.tolist()) for epoch in range(200)]
    assert all(len(set(one)) == 3 and list(one) == sorted(one) for one in drawn)
    assert {position for one in drawn for position in one} == {4, 5, 6, 7, 8}
    assert draw(entry, 3, 1, "anchors", 7).anchors.tolist() == list(drawn[7])
    assert draw(Entry("y", 0, 0, 5, 4), 3, 1).anchors.tolist() == []


def test_supervision_ends_with_the_sample():
    drawn = every(Entry("x", 0, 0, tokens=10, prompt_tokens=7))
    assert drawn.supervised(3).int().tolist() == [[1, 1, 0], [1, 0, 0]]


def test_labels_and_their_predecessors():
    source = Memory([(2, 6), (1, 5)])
    drawn = [every(entry) for entry in source.entries]
    batch = assemble(source, drawn, 2, columns=ALL, dtype=torch.float32)
    ids = [source.held[f"s{i}"][0].tolist() for i in range(2)]
    expected = [(s, a) for s, (p, n) in enumerate(source.lengths) for a in range(p, n - 1)]
    assert len(batch.anchors) == len(expected)
    for row, (sample, anchor) in enumerate(expected):
        for k in range(2):
            inside = anchor + 1 + k < len(ids[sample])
            assert bool(batch.supervised[row, k]) == inside
            if inside:
                assert int(batch.labels[row, k]) == ids[sample][anchor + 1 + k]
                assert int(batch.previous[row, k]) == ids[sample][anchor + k]
    assert batch.positions.tolist() == [0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]


@pytest.mark.parametrize("per_sequence", [False, True])
def test_divisors(per_sequence: bool):
    """Two samples of 3 and 1 supervised tokens (weights 1): a mean of all, or of their means."""
    loss = Loss(**FLAT, per_sequence=per_sequence)
    drawn = [every(Entry("a", 0, 0, 6, 3)), every(Entry("b", 0, 0, 5, 3))]
    scales = weigh(drawn, loss, 2)
    assert [int(d.supervised(2).sum()) for d in drawn] == [3, 1]
    expected = {"a": 1 / 6, "b": 1 / 2} if per_sequence else {"a": 1 / 4, "b": 1 / 4}
    assert scales == pytest.approx(expected)


def test_packs_hold_what_fits_and_leave_out_what_teaches_nothing():
    sizes = [(1, 30), (1, 30), (1, 2), (1, 90), (1, 10)]
    drawn = [every(entry) for entry in Memory(sizes).entries]
    groups = packs(drawn, 64, 10_000, 4)
    assert [[d.entry.id for d in group] for group in groups] == [["s0", "s1"], ["s3"], ["s4"]]


def test_every_epoch_takes_each_sample_once_in_an_order_of_its_own():
    schedule = Schedule(list(range(10)), batch=4, epochs=3, seed=1)
    assert schedule.steps == 9
    epochs = [[i for s in range(3) for i in schedule.indices(3 * e + s)] for e in range(3)]
    assert all(sorted(epoch) == list(range(10)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert Schedule(list(range(10)), 4, 3, 1, max_steps=5).steps == 5


def test_a_split_depends_on_ids_alone():
    source = Memory([(1, 4)] * 60)
    whole = Split.of(source, 0.3, 5)
    assert 5 < len(whole.held) < 35 and sorted(whole.held + whole.train) == list(range(60))
    source.entries = source.entries[:30]
    assert Split.of(source, 0.3, 5).held == [i for i in whole.held if i < 30]
    assert Split.of(source, 0.0, 5).held == []
    source.entries = []
    with pytest.raises(TrainError, match="no sample to train on"):
        Split.of(source, 0.0, 5)


def test_taps_of_the_published_depths():
    assert spread_layers(36) == (1, 9, 17, 25, 33)
    assert spread_layers(40) == (1, 10, 19, 28, 37)
    for layers in range(2, 80):
        taps = spread_layers(layers)
        assert list(taps) == sorted(set(taps)) and taps[0] >= 0 and taps[-1] < layers - 1
