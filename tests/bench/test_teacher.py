"""The teacher prescribes what comes next, for every sequence its own, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence as Seq

import pytest
import torch

from agentspec.bench.ours import Ours
from agentspec.bench.teacher import Lesson, Teacher
from agentspec.bench.workloads import REPLAY, load
from agentspec.engine.batch import Forward, Span

VOCAB = 32


class Stub:
    """Logits that say 0 everywhere."""

    vocab_size, page_tokens, num_pages, context_tokens, exact = VOCAB, 4, 64, 256, True

    def forward(self, spans: Seq[Span]) -> Forward:
        rows = sum(len(span.logit_rows) for span in spans)
        return Forward(torch.zeros(rows, VOCAB))


FIRST = Lesson((1, 2, 3, 4, 10, 11, 12), 4)
SECOND = Lesson((1, 2, 3, 5, 20, 21), 4)


@pytest.fixture
def teacher() -> Teacher:
    teacher = Teacher(Stub())
    teacher.teach([FIRST, SECOND])
    return teacher


def test_without_lessons_nothing_is_changed(teacher: Teacher):
    teacher.teach(())
    assert not teacher.forward([Span([1, 2, 3, 4], 0, [0], [3])]).logits.any()


def test_prompts_in_chunks_find_their_lesson(teacher: Teacher):
    """Both begin alike; the chunk that differs tells them apart."""
    first, second = [0], [1]
    teacher.forward([Span([1, 2], 0, first), Span([1, 2, 3], 0, second)])
    logits = teacher.forward(
        [Span([3, 4], 2, first, [1]), Span([5], 3, second, [0])],
    ).logits
    assert logits.argmax(1).tolist() == [10, 20]


def test_rows_behind_drafts_follow_the_answer_too(teacher: Teacher):
    pages = [0]
    teacher.forward([Span([1, 2, 3, 4], 0, pages, [3])])
    logits = teacher.forward([Span([10, 11, 29], 4, pages, [0, 1, 2])]).logits
    assert logits[:2].argmax(1).tolist() == [11, 12]
    assert not logits[2].any(), "the answer is over"


def test_a_page_table_that_begins_anew_is_another_sequence(teacher: Teacher):
    pages = [0]
    teacher.forward([Span([1, 2, 3, 4], 0, pages, [3])])
    logits = teacher.forward([Span([1, 2, 3, 5], 0, pages, [3])]).logits
    assert logits.argmax(1).tolist() == [20]
    assert not teacher.forward([Span([9, 9], 0, [2], [1])]).logits.any()


@pytest.mark.model
def test_the_engine_writes_the_recorded_edit(model_path):
    ours = Ours.start(str(model_path), 1, None)
    cases = [ours.case(prompt, 32, 300) for prompt in load(REPLAY, 2)]
    answers = {prompt.id: prompt.answer or "" for prompt in load(REPLAY, 2)}
    assert all(290 <= len(case.tokens) <= 300 for case in cases)
    (fast,) = ours.variants("speculative")
    for variant in ("plain", fast):
        for run in ours.runs(cases, variant, 2):
            assert run.text and answers[run.case.partition("@")[0]].startswith(run.text)
            assert (run.accepted_length > 1) == (variant == fast)
