"""Our engine as the bench drives it: the embedded model, in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentspec.bench.ours import Ours
from agentspec.bench.workloads import Case, Prompt, load
from agentspec.engine.tokenizer import Tokenizer

pytestmark = pytest.mark.model
TOKENS = 24


@pytest.fixture(scope="module")
def ours(model_path: Path) -> Ours:
    return Ours.start(str(model_path), 1, None)


@pytest.fixture(scope="module")
def cases(ours: Ours) -> list[Case]:
    prompts = [*load("tool", 1), *load("edit", 1)]
    return [ours.case(prompt, TOKENS) for prompt in prompts]


def test_plain_runs_draft_nothing(ours: Ours, cases: list[Case]):
    assert ours.variants("plain") == ("plain",)
    for run in ours.runs(cases, "plain", 1):
        assert 0 < run.out_tokens <= TOKENS
        assert run.tok_s and run.tok_s > 0 and run.prefill_tok_s > 0
        assert run.accepted_length == 1.0


def test_speculative_runs_are_the_same_answers(ours: Ours, cases: list[Case]):
    """On the exact backend the modes differ in speed alone, whatever runs beside them."""
    (variant,) = ours.variants("speculative")
    plain = {run.case: run.text for run in ours.runs(cases, "plain", 1)}
    fast = {run.case: run for run in ours.runs(cases, variant, 2)}
    assert plain.keys() == fast.keys() == {case.id for case in cases}
    assert all(run.accepted_length >= 1.0 for run in fast.values())
    if all(run.exact for run in fast.values()):
        assert {name: run.text for name, run in fast.items()} == plain


def test_a_case_is_the_prompt_that_the_engine_sees(ours: Ours, model_path: Path):
    body = {"messages": [{"role": "user", "content": "How many legs has a spider?"}]}
    case = ours.case(Prompt("one", "chat", body), TOKENS)
    text = Tokenizer.load(model_path).decode(case.tokens)
    assert "How many legs has a spider?" in text and text.rstrip().endswith("assistant")
