"""The close-out guard's search: a short legal completion from a session's present state.

A greedy descent with backtracking over a clone: forced spans first, then whatever closes (quotes
inside strings, brackets outside), then pieces of required keys, then minimal values, then any other
byte. Grammars have no dead ends, so nearly always the first descent arrives; the least recently
used byte goes first, which keeps patterns from repeating one letter until the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .constrain_vocab import Vocab

if TYPE_CHECKING:
    from .constrain_session import GrammarSession

_MAX_STEPS = 3000
_MAX_FORCED = 1 << 16
OUTSIDE, STRING, ESCAPE = 0, 1, 2
_VALUES = b'0"[{tfnaA1-_.@/: ,]}'
_OTHERS = bytes(b for b in range(33, 127) if b not in _VALUES) + bytes(range(0x80, 0xF5))


@dataclass(frozen=True, slots=True)
class Hints:
    """What leads on where nothing closes.

    tokens: those of required keys. phrases: texts that patterns and formats accept.
    """

    tokens: tuple[int, ...] = ()
    phrases: tuple[bytes, ...] = ()


def find_closing(
    session: GrammarSession, vocab: Vocab, hints: Hints, limit: int
) -> list[int] | None:
    """At most ``limit`` tokens that complete ``session``'s text, or None. Moves ``session``."""
    return _Search(session, vocab, hints).run(limit)


class _Search:
    """Depth-first over the session; ``lexical`` holds the JSON lexer's state along the path."""

    def __init__(self, session: GrammarSession, vocab: Vocab, hints: Hints):
        self.session, self.vocab = session, vocab
        quoted = [t for t in vocab.closers if vocab.token_bytes[t].startswith(b'"')]
        unquoted = [t for t in vocab.closers if not vocab.token_bytes[t].startswith(b'"')]
        comma = [vocab.single[b] for b in b"," if b in vocab.single]
        self.first = {OUTSIDE: [*unquoted, *comma], STRING: quoted, ESCAPE: []}
        single = [vocab.single[b] for b in (*_VALUES, *_OTHERS) if b in vocab.single]
        self.rest = [*hints.tokens, *single]
        self.phrases = [phrase[i:] for phrase in hints.phrases for i in range(len(phrase))]
        self.last_use: dict[int, int] = {}
        self.steps = 0
        text = b"".join(vocab.token_bytes[token] for token in session.tokens)
        self.lexical = [lex(OUTSIDE, text)]

    def run(self, limit: int) -> list[int] | None:
        session = self.session
        path: list[list[int]] = []
        branches: list[Iterator[list[int]]] = [self.candidates()]
        while branches and self.steps < _MAX_STEPS:
            if session.may_stop:
                return [token for piece in path for token in piece]
            self.steps += 1
            room = limit - sum(map(len, path))
            piece = next((p for p in branches[-1] if len(p) <= room), None) if room > 0 else None
            if piece is not None:
                session.accept(piece)
                path.append(piece)
                self.last_use.update(dict.fromkeys(piece, self.steps))
                text = b"".join(self.vocab.token_bytes[token] for token in piece)
                self.lexical.append(lex(self.lexical[-1], text))
                branches.append(self.candidates())
                continue
            branches.pop()
            if path:
                self.lexical.pop()
                session.rollback(len(path.pop()))
        return None

    def candidates(self) -> Iterator[list[int]]:
        """Legal continuations, the most promising first."""
        if forced := self.session.forced(_MAX_FORCED):
            yield forced
            return
        seen: set[int] = set()
        for token in self.first[self.lexical[-1]]:
            if token not in seen and self.session.allows(token):
                seen.add(token)
                yield [token]
        if self.lexical[-1] == STRING:
            yield from filter(None, map(self.spelled, self.phrases))
        for token in sorted(self.rest, key=lambda token: self.last_use.get(token, 0)):
            if token not in seen and self.session.allows(token):
                yield [token]

    def spelled(self, phrase: bytes) -> list[int] | None:
        """A phrase and a quote after it, byte by byte, where both are legal."""
        tokens: list[int] = []
        for byte in phrase + b'"':
            token = self.vocab.single.get(byte, -1)
            if not self.session.allows(token):
                break
            self.session.accept([token])
            tokens.append(token)
        self.session.rollback(len(tokens))
        return tokens if len(tokens) > len(phrase) else None


def lex(state: int, text: bytes) -> int:
    """The JSON lexer's state (``OUTSIDE``, ``STRING``, ``ESCAPE``) after ``text``."""
    for byte in text:
        if state == ESCAPE:
            state = STRING
        elif byte == 0x22:
            state = STRING if state == OUTSIDE else OUTSIDE
        elif byte == 0x5C and state == STRING:
            state = ESCAPE
    return state


def required_texts(schema: Any) -> Iterator[str]:
    """Texts that a minimal value may need: required keys, first enum values, constants."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(reversed(node))
        if not isinstance(node, dict):
            continue
        required = node.get("required")
        if isinstance(required, list):
            yield from (f'"{key}": ' for key in required if isinstance(key, str))
        stack.extend(value for key, value in node.items() if key not in ("enum", "const"))
