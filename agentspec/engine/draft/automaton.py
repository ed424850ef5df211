"""An online suffix automaton over token ids: which suffix occurred before, and what came next.

Blumer et al. 1985, "The smallest automaton recognizing the subwords of a text": amortised O(1) a
token, at most 2n states and 3n transitions. A state stands for the substrings that end at the same
positions; its link is the longest of its suffixes that also ends elsewhere.
Token ids are >= 0; negative ids separate texts: nothing is drafted across them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

ROOT = 0
_BULK = 256
"""From so many tokens on, one recount of the whole is cheaper than a walk a token."""
_MAX_WALK = 32
"""Occurrences are kept up to date for so many states a token, the longest first: on repetitive text
the chain of suffixes grows with the text. Short contexts may then be counted low."""


class SuffixAutomaton:
    """Grows only. ``children[state]`` is read-only for users: token -> state, plain to iterate.

    length[s]: of the longest string of state s. count[s]: how often it occurs. end[s]: the
    position after its latest occurrence.
    """

    __slots__ = ("_linear", "children", "count", "end", "last", "length", "link", "size")

    def __init__(self, tokens: Iterable[int] = ()):
        self.children: list[dict[int, int]] = [{}]
        self.link = [-1]
        self.length = [0]
        self.count = [0]
        self.end = [0]
        self._linear = [False]
        """Whether a state is a prefix of the text (not split off another one)."""
        self.last = ROOT
        self.size = 0
        self.extend(list(tokens))

    def extend(self, tokens: Sequence[int]) -> None:
        """Append ``tokens``. Keeps every state number valid; see ``Cursor`` for what may change."""
        if len(tokens) >= _BULK:
            for token in tokens:
                self._append(token)
            self._recount()
            return
        for token in tokens:
            self._append(token)
            self._touch()

    def _append(self, token: int) -> None:
        children, link, length = self.children, self.link, self.length
        self.size += 1
        new = len(link)
        children.append({})
        length.append(self.size)
        self.count.append(0)
        self.end.append(self.size)
        self._linear.append(True)
        state = self.last
        self.last = new
        while state >= 0 and token not in children[state]:
            children[state][token] = new
            state = link[state]
        if state < 0:
            link.append(ROOT)
            return
        target = children[state][token]
        if length[target] == length[state] + 1:
            link.append(target)
            return
        link.append(len(link) + 1)
        self._split(state, token, target)

    def _split(self, state: int, token: int, target: int) -> None:
        """Give the strings of ``target`` that end ``state + token`` a state of their own."""
        children, link = self.children, self.link
        copy = len(link)
        children.append(children[target].copy())
        link.append(link[target])
        self.length.append(self.length[state] + 1)
        self.count.append(self.count[target])
        self.end.append(self.end[target])
        self._linear.append(False)
        link[target] = copy
        while state >= 0 and children[state].get(token) == target:
            children[state][token] = copy
            state = link[state]

    def _touch(self) -> None:
        """Count the newest position for the suffixes that end there."""
        state, link = self.last, self.link
        for _ in range(_MAX_WALK):
            if state <= ROOT:
                break
            self.count[state] += 1
            self.end[state] = self.size
            state = link[state]

    def _recount(self) -> None:
        """Occurrences of all states, from the longest down."""
        link, length, end = self.link, self.length, self.end
        count = [int(linear) for linear in self._linear]
        for state in range(len(link)):
            if self._linear[state]:
                end[state] = length[state]
        for state in sorted(range(1, len(link)), key=length.__getitem__, reverse=True):
            parent = link[state]
            count[parent] += count[state]
            if end[parent] < end[state]:
                end[parent] = end[state]
        self.count = count


class Cursor:
    """The longest suffix of some other text that occurs in an automaton, kept while both grow."""

    __slots__ = ("_length", "_state", "automaton")

    def __init__(self, automaton: SuffixAutomaton):
        self.automaton = automaton
        self._state = ROOT
        self._length = 0

    def feed(self, tokens: Iterable[int]) -> None:
        """Go over further tokens of the other text; amortised O(1) a token."""
        children, link, length = (
            self.automaton.children,
            self.automaton.link,
            self.automaton.length,
        )
        state, matched = self.where()
        for token in tokens:
            while state != ROOT and token not in children[state]:
                state = link[state]
                matched = length[state]
            if token in children[state]:
                state = children[state][token]
                matched += 1
        self._state, self._length = state, matched

    def where(self) -> tuple[int, int]:
        """(state, matched length). A state may have been split since: the match keeps to the part
        that holds a string of its length."""
        link, length = self.automaton.link, self.automaton.length
        while self._state != ROOT and self._length <= length[link[self._state]]:
            self._state = link[self._state]
        return self._state, self._length
