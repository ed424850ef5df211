"""Features of the embedded model come from the int8 kernels that serve it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from agentspec_kernels._cpu.build import Unavailable

from agentspec.engine.batch import Span
from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.train.config import load
from agentspec.engine.train.target import Target


@pytest.mark.model
def test_last_hidden_states_give_the_logits_that_are_served(model_path: Path, tmp_path: Path):
    (tmp_path / "draft.toml").write_text(f"[target]\nweights = '{model_path}'\nformat = 'int8'\n")
    target = Target.open(load(tmp_path / "draft.toml"))
    ids = target.tokenizer.encode(
        "def add(a, b):\n    return a + b\n\n\ndef sub(a, b):\n    return"
    )
    try:
        first, again = list(target.features([ids, ids], 10_000))
    except Unavailable as error:
        pytest.skip(str(error))
    assert isinstance(target.runner, ExactRunner) and target.id.format == "int8"
    assert target.layers == (1, 8, 14, 20, 27)
    assert first.features.shape == (len(ids), 5 * 576) and first.last.shape == (len(ids), 576)
    # Exact: neither the neighbour nor the chunking changes a bit.
    (chunked,) = target.features([ids], 8)
    for other in (again, chunked):
        assert torch.equal(first.features, other.features) and torch.equal(first.last, other.last)
    rows = list(range(len(ids)))
    served = target.runner.forward([Span(ids, 0, [0, 1, 2, 3], rows)]).logits.log_softmax(-1)
    ours = (first.last.float() @ target.tables.head.T).log_softmax(-1)
    kl = (served.exp() * (served - ours)).sum(-1)
    assert float(kl.mean()) < 0.01
    assert (served.argmax(-1) == ours.argmax(-1)).float().mean() > 0.9
