"""K/V pages: who owns which, and which finished ones can serve a later prompt.

A page holds the K/V of ``page_tokens`` consecutive positions. A sequence owns its pages through a
``PageTable``; a page whose every position is computed and committed is *published* in an index,
from where later sequences of the same cache scope take it instead of computing it again.

The positions of one sequence, as half-open intervals (page borders at ``|``)::

    0                published           computed     len(tokens)      grown
    |-----------|-----------|-----------|------------------|-------------|
    [  matched or published pages      )[ private pages                  )
    [  K/V valid                                   )[ rows of next step  )

* published is a multiple of ``page_tokens``, at most ``computed``; those pages are never written
  again and may be shared. Everything behind is private to the sequence (one reference, no key).
* K/V of rejected draft tokens lies behind ``computed`` and is overwritten by the next step.

Every page is in exactly one of three states::

    free     no reference, no key          the pool's stack
    cached   no reference, key             evicted, least recently used first, when no page is free
    used     1.. references, key or none   a page without a key has exactly one reference

A key is a digest over scope and all tokens up to the page's end, so it names one text of one scope.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from hashlib import blake2b

_DIGEST_BYTES = 20


@dataclass(slots=True)
class PageTable:
    """The pages of one sequence, in position order.

    keys: chain digests of the leading full pages that were matched or published.
    """

    scope: str
    pages: list[int] = field(default_factory=list)
    keys: list[bytes] = field(default_factory=list)


class PagePool:
    """All pages of an engine and the prefix index over them. Holds numbers only, no tensors."""

    def __init__(self, num_pages: int, page_tokens: int):
        assert num_pages > 0 and page_tokens > 0
        self.num_pages = num_pages
        self.page_tokens = page_tokens
        self.epochs = [0] * num_pages
        """How often each page was given out; read only."""
        self._references = [0] * num_pages
        self._free = list(range(num_pages - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()
        self._page_of: dict[bytes, int] = {}
        self._key_of: dict[int, bytes] = {}

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def cached(self) -> int:
        return len(self._cached)

    @property
    def used(self) -> int:
        return self.num_pages - self.free - self.cached

    @property
    def available(self) -> int:
        """Pages that ``grow`` could hand out now."""
        return self.free + self.cached

    def pages_for(self, tokens: int) -> int:
        """How many pages hold ``tokens`` positions."""
        return -(-tokens // self.page_tokens)

    def match(self, table: PageTable, tokens: Seq[int], limit: int) -> int:
        """Fill an empty table with the published pages of the longest known prefix of ``tokens``.

        Returns the number of positions served, a multiple of ``page_tokens`` of at most ``limit``.
        """
        assert not table.pages and not table.keys
        key = _root(table.scope)
        for start in range(0, limit - self.page_tokens + 1, self.page_tokens):
            key = _extend(key, tokens[start : start + self.page_tokens])
            page = self._page_of.get(key)
            if page is None:
                break
            self._take(page)
            table.pages.append(page)
            table.keys.append(key)
        return len(table.pages) * self.page_tokens

    def grow(self, table: PageTable, tokens: int) -> bool:
        """Make the table cover positions [0, tokens). False, and nothing changed, without room."""
        missing = self.pages_for(tokens) - len(table.pages)
        if missing > self.available:
            return False
        for _ in range(missing):
            table.pages.append(self._allocate())
        return True

    def publish(self, table: PageTable, tokens: Seq[int], computed: int) -> None:
        """Index the pages that are full of valid K/V: ``tokens[:computed]`` are committed.

        Where another sequence published the same text first, the page stays private; its key is
        kept in the table, so that the chain goes on.
        """
        for number in range(len(table.keys), computed // self.page_tokens):
            parent = table.keys[-1] if table.keys else _root(table.scope)
            start = number * self.page_tokens
            key = _extend(parent, tokens[start : start + self.page_tokens])
            table.keys.append(key)
            if key not in self._page_of:
                page = table.pages[number]
                self._page_of[key] = page
                self._key_of[page] = key

    def release(self, table: PageTable) -> None:
        """Give all references back; published pages stay cached. The table is empty afterwards."""
        # Last page first: a prefix must outlive what follows it, or that could not be found.
        for page in reversed(table.pages):
            self._references[page] -= 1
            if self._references[page] == 0:
                if page in self._key_of:
                    self._cached[page] = None
                else:
                    self._free.append(page)
        table.pages.clear()
        table.keys.clear()

    def _take(self, page: int) -> None:
        self._cached.pop(page, None)
        self._references[page] += 1

    def _allocate(self) -> int:
        if self._free:
            page = self._free.pop()
        else:
            page, _ = self._cached.popitem(last=False)
            del self._page_of[self._key_of.pop(page)]
        self._references[page] = 1
        self.epochs[page] += 1
        return page

    def check_integrity(self, tables: Iterable[PageTable]) -> None:
        """Raise ``AssertionError`` unless the three states and the index hold together.

        tables: those of every sequence that may own pages.
        """
        counts = [0] * self.num_pages
        for table in tables:
            assert len(table.keys) <= len(table.pages), "keys beyond the pages of a table"
            assert len(set(table.pages)) == len(table.pages), "a table owns a page twice"
            for number, page in enumerate(table.pages):
                counts[page] += 1
                if page in self._key_of:
                    assert number < len(table.keys), "a published page behind the published part"
                    assert self._key_of[page] == table.keys[number], "a page holds another text"
        assert counts == self._references, "references do not equal the tables' pages"
        free, cached = set(self._free), set(self._cached)
        used = {page for page, count in enumerate(counts) if count}
        assert len(free) == len(self._free), "a page is free twice"
        assert not free & cached and not free & used and not cached & used, "states overlap"
        assert len(free) + len(cached) + len(used) == self.num_pages, "a page is lost"
        assert all(page not in self._key_of for page in free), "a free page is indexed"
        assert all(page in self._key_of for page in cached), "a cached page is not indexed"
        assert all(counts[p] == 1 or p in self._key_of for p in used), "a private page is shared"
        assert {key: page for page, key in self._key_of.items()} == self._page_of, "index is torn"


def _root(scope: str) -> bytes:
    return blake2b(scope.encode(), digest_size=_DIGEST_BYTES, person=b"scope").digest()


def _extend(parent: bytes, tokens: Seq[int]) -> bytes:
    body = parent + array("q", tokens).tobytes()
    return blake2b(body, digest_size=_DIGEST_BYTES).digest()
