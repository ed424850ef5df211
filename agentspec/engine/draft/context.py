"""Which committed tokens of a sequence a draft's own K/V plane knows. Numbers only, no tensors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .backbone import PAGE

if TYPE_CHECKING:
    from .base import DraftView, Observed


@dataclass(slots=True)
class Context:
    """The plane knows the positions [start, end) of a sequence; start is a multiple of 16."""

    start: int
    end: int

    @property
    def known(self) -> int:
        return max(self.end - self.start, 0)


class Plane:
    """One draft's K/V beside the pool's pages: which pages hold it in full, and since when.

    A page is marked by the number of times it had been given out (``DraftView.page_epochs``) when
    the draft's K/V of all its positions was written. So a prefix hit finds the plane where this
    draft saw that text, and nothing where the page was written without it, or for another text.
    """

    def __init__(self, num_pages: int):
        self._marks = [0] * num_pages

    def open(self, view: DraftView) -> Context:
        """What is known of a sequence that holds the pages of a prefix hit only: the end of it."""
        end = len(view.pages) * PAGE
        start = end
        for page in reversed(view.pages):
            if self._marks[page] != view.page_epochs[page]:
                break
            start -= PAGE
        return Context(start, end)

    def extend(self, context: Context, seen: Observed) -> None:
        """The K/V of ``seen`` was written. Behind a gap the context begins anew."""
        if not context.start <= seen.start <= context.end:
            context.start = -(-seen.start // PAGE) * PAGE
        context.end = seen.end
        view = seen.view
        first = max(seen.start // PAGE, context.start // PAGE)
        for number in range(first, seen.end // PAGE):
            page = view.pages[number]
            self._marks[page] = view.page_epochs[page]
