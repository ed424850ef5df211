"""The ``draft_model`` drafter: a smaller model with the target's tokenizer (arXiv 2211.17192).

It has a runner and K/V pages of its own, so any model that the engine runs can be one. What it has
not seen of a text it reads in chunks, one a step; the pages of what it read serve later turns.

Legend: V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec.engine.batch import Span
from agentspec.engine.cache import PagePool, PageTable
from agentspec.engine.model.errors import ModelError

from .base import DraftView, Proposal
from .drawing import Drawing

if TYPE_CHECKING:
    from agentspec.engine.core import Runner
    from agentspec.engine.tokenizer import Tokenizer
    from agentspec.settings import EngineSettings


class TokenizerMismatch(ModelError):
    """A draft model whose token ids don't mean what the target's do."""


def require_same_tokenizer(name: str, draft: Tokenizer, target: Tokenizer) -> None:
    """Raise ``TokenizerMismatch``, naming what differs, unless both read every id alike.

    Padding at the vocabulary's end may differ.
    """
    pairs = zip(draft.token_bytes, target.token_bytes, strict=False)
    apart = next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), None)
    shorter, longer = sorted((draft.token_bytes, target.token_bytes), key=len)
    if apart is None and any(longer[len(shorter) :]):
        apart = len(shorter)
    if apart is not None:
        raise TokenizerMismatch(
            f"draft model '{name}' has another tokenizer than the target: token {apart} differs"
        )
    for what in ("special_ids", "eos_ids"):
        if getattr(draft, what) != getattr(target, what):
            raise TokenizerMismatch(
                f"draft model '{name}' has another tokenizer than the target: {what} differ"
            )


def open_draft_model(
    settings: EngineSettings, path: Path, target: Tokenizer, vocab_size: int, **options: Any
) -> DraftModelDrafter:
    """The drafter of a GGUF file or safetensors folder. settings: of its runner, pages included;
    target, vocab_size: of the target; options: the drafter's.

    Raises ``TokenizerMismatch``, ``TokenizerError``, ``UnsupportedModel`` or ``WeightsError``.
    """
    from agentspec.engine.runners import open_runner
    from agentspec.engine.tokenizer import Tokenizer

    require_same_tokenizer(path.name, Tokenizer.load(path), target)
    return DraftModelDrafter(open_runner(settings, path), vocab_size=vocab_size, **options)


@dataclass(slots=True)
class _Text:
    """What the draft model has of a sequence: K/V of ``computed`` positions of it, and behind them
    of ``ahead``, drafted tokens that may yet be committed."""

    table: PageTable
    computed: int = 0
    ahead: list[int] = field(default_factory=list)


class DraftModelDrafter:
    """A ``Drafter`` over a runner. Greedy and seeded drafts are one-hot, others dense.

    vocab_size: V of the target; None: the draft's own. max_tokens: most tokens of a draft.
    min_survival: a draft ends where the product of its confidences falls below it. chunk_tokens:
    how much of a sequence is read in a step before anything is drafted for it.
    """

    taps: tuple[int, ...] = ()

    def __init__(
        self,
        runner: Runner,
        *,
        name: str = "draft_model",
        vocab_size: int | None = None,
        max_tokens: int = 16,
        min_survival: float = 0.1,
        chunk_tokens: int = 512,
    ):
        self.name = name
        self._runner = runner
        self._vocab = vocab_size or runner.vocab_size
        self._max_tokens = max_tokens
        self._min_survival = min_survival
        self._chunk_tokens = chunk_tokens
        self._pool = PagePool(runner.num_pages, runner.page_tokens)
        self._texts: dict[int, _Text] = {}

    def open(self, view: DraftView) -> None:
        text = _Text(PageTable(view.cache_scope))
        text.computed = self._pool.match(text.table, view.tokens, len(view.tokens) - 1)
        self._texts[view.sequence_id] = text

    def propose(self, views: Sequence[DraftView], limits: Sequence[int]) -> list[Proposal]:
        with ExitStack() as stack:
            drafts: list[_Draft] = []
            for view, limit in zip(views, limits, strict=True):
                text = self._texts[view.sequence_id]
                drawing = Drawing(
                    self.name,
                    view,
                    min(limit, self._max_tokens),
                    self._vocab,
                    view.entropy,
                    self._min_survival,
                )
                drafts.append(_Draft(stack.enter_context(drawing), text))
            self._draw(drafts)
            return [draft.drawing.result() for draft in drafts]

    def _draw(self, drafts: list[_Draft]) -> None:
        """Read what is new and draw until every draft has ended, all of them in each pass."""
        for draft in drafts:
            draft.text.ahead.clear()
            draft.feed = draft.unread(self._chunk_tokens)
        running = [draft for draft in drafts if not draft.drawing.ended]
        while running := [draft for draft in running if self._place(draft)]:
            wanted = [draft for draft in running if draft.caught_up]
            logits = self._runner.forward([draft.span() for draft in running]).logits
            for draft in running:
                draft.went()
            for row, draft in enumerate(wanted):
                draft.feed = draft.drawing.draw(logits[row])
            running = [draft for draft in wanted if not draft.drawing.ended]

    def _place(self, draft: _Draft) -> bool:
        """Whether pages are there for what is fed; pages of this sequence only are taken."""
        end = draft.start + len(draft.feed)
        return end <= self._runner.context_tokens and self._pool.grow(draft.text.table, end)

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        text = self._texts[view.sequence_id]
        came = view.tokens[len(view.tokens) - committed :]
        if text.computed == len(view.tokens) - committed:
            for drafted, token in zip(text.ahead, came, strict=False):
                if drafted != token:
                    break
                text.computed += 1
        text.ahead.clear()
        self._pool.publish(text.table, view.tokens, text.computed)

    def close(self, view: DraftView) -> None:
        self._pool.release(self._texts.pop(view.sequence_id).table)


@dataclass(slots=True)
class _Draft:
    """One sequence's part in one call. feed: the tokens of its next rows."""

    drawing: Drawing
    text: _Text
    feed: list[int] = field(default_factory=list)

    @property
    def start(self) -> int:
        """Position of the first token of ``feed``."""
        return self.text.computed + len(self.text.ahead)

    @property
    def caught_up(self) -> bool:
        """Nothing committed is left to read behind ``feed``."""
        return self.start + len(self.feed) >= len(self.drawing.view.tokens)

    def unread(self, most: int) -> list[int]:
        """At most ``most`` committed tokens that the draft model has not read.

        The last one is always read anew: its logits are what a draft begins with.
        """
        self.text.computed = min(self.text.computed, len(self.drawing.view.tokens) - 1)
        return self.drawing.view.tokens[self.text.computed : self.text.computed + most]

    def span(self) -> Span:
        rows = [len(self.feed) - 1] if self.caught_up else []
        return Span(self.feed, self.start, self.text.table.pages, rows)

    def went(self) -> None:
        """``feed`` was computed."""
        known = len(self.drawing.view.tokens) - self.text.computed
        if known > 0:
            self.text.computed += len(self.feed)
        else:
            self.text.ahead.extend(self.feed)
