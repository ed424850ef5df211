"""A runner that makes the engine write a given answer: the pass is real, its outcome prescribed.

What the engine drafts, verifies and computes costs what it always costs; only the best score of
each row is moved to the recorded token. So acceptance is that of the recorded text.

Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING, NamedTuple

from agentspec.engine.batch import Forward, Span
from agentspec.engine.taps import Tappable

if TYPE_CHECKING:
    from torch import Tensor

    from agentspec.engine.core import Runner

_CERTAIN = 1e30


class Lesson(NamedTuple):
    """tokens: prompt and answer; prompt: how many are the prompt's."""

    tokens: tuple[int, ...]
    prompt: int


class Teacher:
    """Same face as the runner inside it. Without lessons nothing is changed."""

    def __init__(self, inner: Runner):
        self._inner = inner
        self.vocab_size, self.page_tokens = inner.vocab_size, inner.page_tokens
        self.num_pages, self.context_tokens = inner.num_pages, inner.context_tokens
        self.exact = inner.exact
        self._lessons: list[Lesson] = []
        self._open: dict[int, list[Lesson]] = {}

    def teach(self, lessons: Seq[Lesson]) -> None:
        """From now on sequences with these prompts are answered so; () ends it."""
        self._lessons, self._open = list(lessons), {}

    def forward(self, spans: Seq[Span]) -> Forward:
        forward = self._inner.forward(spans)
        if self._lessons:
            row = 0
            for span in spans:
                self._bend(span, forward.logits[row : row + len(span.logit_rows)])
                row += len(span.logit_rows)
        return forward

    def set_taps(self, taps: Seq[int]) -> None:
        """As the runner inside. Raises ``ValueError`` where it has no features to give."""
        if isinstance(self._inner, Tappable):
            self._inner.set_taps(taps)
        elif taps:
            raise ValueError("this runner has no features to give")

    def compact(self, pages: Seq[int], moves: Seq[tuple[int, int]]) -> None:
        self._inner.compact(pages, moves)

    def _bend(self, span: Span, logits: Tensor) -> None:
        """logits: the R rows [R, V] of one span; changed in place."""
        lessons = self._fitting(span)
        if not lessons:
            return
        tokens = lessons[0].tokens
        positions = span.positions()
        for row, offset in enumerate(span.logit_rows):
            place = positions[offset] + 1
            if place < len(tokens):
                logits[row, tokens[place]] = _CERTAIN

    def _fitting(self, span: Span) -> list[Lesson]:
        """The lessons that a sequence may be: told by its prompt, known by its page table."""
        if span.start == 0:
            self._open[id(span.pages)] = self._lessons
        fitting = [
            lesson
            for lesson in self._open.get(id(span.pages), [])
            if _agree(lesson.tokens[span.start : lesson.prompt], span.tokens)
        ]
        self._open[id(span.pages)] = fitting
        return fitting


def _agree(known: Seq[int], seen: Seq[int]) -> bool:
    both = min(len(known), len(seen))
    return list(known[:both]) == list(seen[:both])
