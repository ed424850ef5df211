"""The close-out guard's search: a short legal completion from a session's present state.

A greedy descent with backtracking over a clone: forced spans first, then whatever closes (quotes
inside strings, brackets outside), then texts that patterns and formats accept, pieces of required
keys, minimal values, and any other byte. Grammars have no dead ends, so nearly always the first
descent arrives. Inside strings the least recently used byte goes first, which keeps patterns from
repeating one letter until the limit; outside them the order is fixed, from ``null`` to ``{``, so
that a recursion is left at the first chance. Operations of the matcher are bounded: a search that
fails costs no more than so many.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .vocab import Vocab

if TYPE_CHECKING:
    from .session import GrammarSession

_MAX_OPERATIONS = 4000
_NEAR_TOKENS = 96
_MAX_FORCED = 1 << 16
OUTSIDE, STRING, ESCAPE = 0, 1, 2
_VALUES = b'n0"tf1-[{'
_INNER = b"0aA1-_.@/: ,"
_OTHERS = bytes(b for b in range(32, 127) if b not in _INNER and b not in b'"\\') + bytes(
    range(0x80, 0xF5)
)


@dataclass(frozen=True, slots=True)
class Hints:
    """What leads on where nothing closes.

    tokens: those of required keys. phrases: texts that patterns and formats accept. values: JSON
    of values that the schema names. marks: special tokens that the format's marks are made of.
    """

    tokens: tuple[int, ...] = ()
    values: tuple[bytes, ...] = ()
    phrases: tuple[bytes, ...] = ()
    marks: tuple[int, ...] = ()
    ends: tuple[tuple[bytes, int], ...] = field(init=False, repr=False)
    """(phrase, start) of every end of every phrase, whole phrases first."""

    def __post_init__(self) -> None:
        ends = [(p, i) for p in self.phrases for i in range(len(p))]
        object.__setattr__(self, "ends", tuple(sorted(ends, key=lambda end: end[1] > 0)))


def find_closing(
    session: GrammarSession,
    vocab: Vocab,
    hints: Hints,
    limit: int,
    *,
    operations: int = _MAX_OPERATIONS,
) -> list[int] | None:
    """At most ``limit`` tokens that complete ``session``'s text, or None. Moves ``session``.

    operations: of the matcher, after which the search is given up.
    """
    started = len(session.tokens)
    near = min(limit, _NEAR_TOKENS)
    found = _Search(session, vocab, hints, operations // 2).run(near)
    if found is None and near < limit:
        # Depth first is lost where one byte may be repeated for ever: hence the near end first.
        session.rollback(len(session.tokens) - started)
        found = _Search(session, vocab, hints, operations).run(limit)
    return found


def nothing_closes(session: GrammarSession, vocab: Vocab, hints: Hints, limit: int) -> bool:
    """Whether it is sure that no tokens complete ``session``'s text. Moves ``session``."""
    search = _Search(session, vocab, hints, _MAX_OPERATIONS)
    return search.run(limit) is None and not search.cut


class _Search:
    """Depth-first over the session; ``lexical`` holds the JSON lexer's state along the path."""

    def __init__(self, session: GrammarSession, vocab: Vocab, hints: Hints, most: int):
        self.most = most
        self.cut = False
        """Whether a way was left because it is too long, or all because there are too many."""
        self.session, self.vocab, self.hints = session, vocab, hints
        quoted = [t for t in vocab.closers if vocab.token_bytes[t].startswith(b'"')]
        unquoted = [t for t in vocab.closers if not vocab.token_bytes[t].startswith(b'"')]
        comma = [vocab.single[b] for b in b"," if b in vocab.single]
        self.first = {OUTSIDE: [*unquoted, *hints.marks, *comma], STRING: quoted, ESCAPE: []}
        self.values = [vocab.single[b] for b in _VALUES if b in vocab.single]
        single = [vocab.single[b] for b in (*_INNER, *_OTHERS, 0x5C) if b in vocab.single]
        self.rest = [*hints.tokens, *single]
        self.last_use: dict[int, int] = {}
        self.operations = self.steps = 0
        text = b"".join(vocab.token_bytes[token] for token in session.tokens)
        self.lexical = [lex(OUTSIDE, text)]

    def run(self, limit: int) -> list[int] | None:
        session = self.session
        path: list[list[int]] = []
        branches: list[Iterator[list[int]]] = [self.candidates()]
        while branches and self.operations < self.most:
            if session.may_stop:
                return [token for piece in path for token in piece]
            self.steps += 1
            room = limit - sum(map(len, path))
            self.cut = self.cut or room <= 64
            piece = next((p for p in branches[-1] if len(p) <= room), None) if room > 0 else None
            if piece is not None:
                self.accept(piece)
                if session.broken:
                    session.rollback(len(piece))
                    continue
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
        self.cut = self.cut or bool(branches)
        return None

    def accept(self, tokens: list[int]) -> None:
        self.operations += 4 * len(tokens)  # each asks for the next forced span as well
        self.session.accept(tokens)

    def allows(self, token: int) -> bool:
        self.operations += 1
        return self.session.allows(token)

    def candidates(self) -> Iterator[list[int]]:
        """Legal continuations, the most promising first."""
        if forced := self.session.forced(_MAX_FORCED):
            yield forced
            return
        state = self.lexical[-1]
        seen: set[int] = set()
        for token in self.first[state]:
            if token not in seen and self.allows(token):
                seen.add(token)
                yield [token]
        if state == STRING:
            yield from self.spelled()
        elif state == OUTSIDE:
            yield from self.named()
            for token in self.values:
                if token not in seen and self.allows(token):
                    seen.add(token)
                    yield [token]
        for token in sorted(self.rest, key=lambda token: self.last_use.get(token, 0)):
            if token not in seen and self.allows(token):
                yield [token]

    def named(self) -> Iterator[list[int]]:
        """Values that the schema names, where they are legal here."""
        for text in self.hints.values:
            if self.allows(self.vocab.single.get(text[0], -1)) and (tokens := self.walked(text)):
                yield tokens

    def spelled(self) -> Iterator[list[int]]:
        """Hinted phrases, or the ends of them, with a quote after, that are legal here."""
        firsts: dict[int, bool] = {}
        for phrase, start in self.hints.ends:
            byte = phrase[start]
            if byte not in firsts:
                firsts[byte] = self.allows(self.vocab.single.get(byte, -1))
            if firsts[byte] and (tokens := self.walked(phrase[start:] + b'"')):
                yield tokens

    def walked(self, text: bytes) -> list[int] | None:
        """The tokens of ``text``, byte by byte and along forced spans, where it is legal."""
        tokens: list[int] = []
        place = 0
        while place < len(text) and self.operations < self.most:
            step = self.session.forced(_MAX_FORCED) or [self.vocab.single.get(text[place], -1)]
            piece = b"".join(self.vocab.token_bytes[token] for token in step if token >= 0)
            if not self.allows(step[0]) or not (
                text.startswith(piece, place) or piece.startswith(text[place:])
            ):
                break
            self.accept(step)
            tokens += step
            place += len(piece)
        self.session.rollback(len(tokens))
        return tokens if place >= len(text) else None


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


def named_values(schema: Any, most: int) -> Iterator[Any]:
    """Constants and first enum values, at most ``most``."""
    stack = [schema]
    while stack and most > 0:
        node = stack.pop()
        if isinstance(node, list):
            stack.extend(reversed(node))
        if not isinstance(node, dict):
            continue
        listed = node["enum"][:2] if isinstance(node.get("enum"), list) else []
        for value in [node["const"], *listed] if "const" in node else listed:
            most -= 1
            yield value
        stack.extend(value for key, value in node.items() if key not in ("enum", "const"))


def required_texts(schema: Any) -> Iterator[str]:
    """Texts that a minimal value may need: required keys."""
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
