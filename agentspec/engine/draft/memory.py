"""What a conversation said before: earlier turns of each (cache_scope, session), bounded."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence

from .automaton import SuffixAutomaton

SEPARATOR = -1
_TURNS = 4


class SessionText:
    """All text of one session, each part once. Sequences that read it keep it alive."""

    def __init__(self, automaton: SuffixAutomaton):
        self.automaton = automaton
        self._turns: deque[list[int]] = deque(maxlen=_TURNS)

    def known(self, tokens: Sequence[int]) -> int:
        """How many leading ``tokens`` are indexed: a recent turn of this session began so."""
        return max((_common_prefix(turn, tokens) for turn in self._turns), default=0)

    def remember(self, tokens: Sequence[int]) -> None:
        """``tokens`` is a whole turn, all of it in ``automaton``."""
        self._turns.append(list(tokens))


class SessionStore:
    """Texts by (cache_scope, session), the least recently used dropped first.

    max_tokens: over all sessions (about 0.5 kB of memory each). max_session_tokens: a session that
    outgrows it starts anew with its latest turn. Nothing is ever found under another scope.
    """

    def __init__(self, max_tokens: int = 131_072, max_session_tokens: int = 32_768):
        self._max_tokens = max_tokens
        self._max_session_tokens = max_session_tokens
        self._texts: OrderedDict[tuple[str, str], SessionText] = OrderedDict()

    def get(self, scope: str, session: str | None) -> SessionText | None:
        """The text of a session, or None where nothing is known of it (or it has no name)."""
        if session is None:
            return None
        text = self._texts.get((scope, session))
        if text is not None:
            self._texts.move_to_end((scope, session))
        return text

    def keep(
        self, scope: str, session: str | None, tokens: Sequence[int], own: SuffixAutomaton
    ) -> None:
        """A sequence of the session ended with ``tokens``; ``own`` indexes their last ``own.size``.

        ``own`` may become part of the store: it is not to be changed afterwards.
        """
        if session is None or not tokens:
            return
        text = self._texts.get((scope, session))
        if text is not None:
            start = max(len(tokens) - own.size, text.known(tokens))
            new = len(tokens) - start
            if text.automaton.size + new + 1 > self._max_session_tokens:
                text = None
            elif new:
                text.automaton.extend([SEPARATOR, *tokens[start:]])
        whole = text is not None or own.size == len(tokens)
        text = text or SessionText(own)
        if whole:
            text.remember(tokens)
        self._texts[scope, session] = text
        self._texts.move_to_end((scope, session))
        self._shrink()

    def _shrink(self) -> None:
        total = sum(text.automaton.size for text in self._texts.values())
        while total > self._max_tokens and len(self._texts) > 1:
            _, dropped = self._texts.popitem(last=False)
            total -= dropped.automaton.size


def _common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    shorter = min(len(a), len(b))
    if a[:shorter] == b[:shorter]:
        return shorter
    return next(i for i in range(shorter) if a[i] != b[i])
