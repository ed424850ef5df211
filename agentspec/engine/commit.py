"""Committing tokens: the one place where a sequence grows, whatever chose the tokens.

Every rule here looks at committed tokens only, one after the other. So the text is the same
whether a token was sampled alone, accepted as a draft or forced, and in whatever company it came:

* law 2: where the constraint forces a span it is committed without asking the model;
* a stop token, a stop string, a complete constrained text or ``max_tokens`` ends the sequence;
* the close-out guard shuts open JSON before ``max_tokens`` does (``closeout.py``).

What candidates remain behind such a point is dropped, even if verification had accepted them.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from typing import TYPE_CHECKING

from .constrain import ConstraintUnmet

if TYPE_CHECKING:
    from .sequence import Sequence

TokenBytes = Seq[bytes]
"""The bytes of each token id of the vocabulary."""


def begin(sequence: Sequence, token_bytes: TokenBytes) -> None:
    """Commit what the constraint forces before the first token. Raises as ``advance``."""
    constraint = sequence.constraint
    if constraint is None:
        return
    assert sequence.close_out is not None
    if constraint.must_stop:
        sequence.finish("stop")
        return
    sequence.close_out.check(constraint, sequence.remaining)
    _follow_forced(sequence, token_bytes, [])


def advance(sequence: Sequence, candidates: Seq[int], token_bytes: TokenBytes) -> list[bool]:
    """Commit ``candidates`` in order, and what the constraint forces after each of them.

    Returns for each candidate that was committed as such, from the first on, whether it was chosen
    by the model (True) or equals a forced token (False); the rest was dropped.
    Raises ``ConstraintViolated`` when a candidate is illegal; the sequence is then to be failed.
    """
    kept: list[bool] = []
    while len(kept) < len(candidates) and not sequence.finished:
        if not _take(sequence, candidates[len(kept)], token_bytes):
            break
        kept.append(True)
        matched, apart = _follow_forced(sequence, token_bytes, candidates[len(kept) :])
        kept.extend([False] * matched)
        if apart:
            break
    return kept


def _follow_forced(
    sequence: Sequence, token_bytes: TokenBytes, candidates: Seq[int]
) -> tuple[int, bool]:
    """Commit the forced span that starts here, if any.

    Returns how many candidates the span consumed, and whether it left their path.
    """
    committed: list[int] = []
    while sequence.constraint is not None and not sequence.finished:
        span = sequence.constraint.forced(sequence.remaining)
        if not span:
            break
        for token in span:
            if not _take(sequence, token, token_bytes, forced=True):
                break
            committed.append(token)
            if sequence.finished:
                break
    matched = 0
    for ours, theirs in zip(committed, candidates, strict=False):
        if ours != theirs:
            return matched, True
        matched += 1
    return matched, matched < len(committed)


def _take(sequence: Sequence, token: int, token_bytes: TokenBytes, *, forced: bool = False) -> bool:
    """Commit one token. False where it was taken back: the guard committed a closing in its place,
    or nothing right could follow it, and its place is to be decoded again.
    """
    constraint = sequence.constraint
    if token in sequence.request.stop_ids:
        _end(sequence, token)
        return True
    literal = False
    if constraint is not None:
        assert sequence.close_out is not None
        literal = constraint.in_grammar
        constraint.accept((token,))
        if not constraint.viable():
            constraint.rollback(1)
            constraint.ban(token)
            sequence.tally.redecoded += 1
            return False
        closing = sequence.close_out.check(constraint, sequence.remaining - 1, token)
        if closing is not None:
            constraint.rollback(1)
            _close(sequence, closing, token_bytes)
            return False
        literal = literal or constraint.in_grammar
    _append(sequence, token, token_bytes, literal=literal, forced=forced)
    complete = constraint is not None and constraint.must_stop
    if sequence.emission.stopped or complete:
        sequence.finish("stop")
    elif sequence.remaining == 0:
        sequence.finish("length")
    return True


def _end(sequence: Sequence, token: int) -> None:
    """Commit a stop token, which is not part of the text."""
    constraint = sequence.constraint
    if constraint is not None and not constraint.may_stop:
        raise ConstraintUnmet(f"token {token} ends the text where the grammar goes on")
    sequence.emission.push(len(sequence.tokens), b"", literal=True)
    sequence.tokens.append(token)
    sequence.finish("stop")


def _close(sequence: Sequence, closing: Seq[int], token_bytes: TokenBytes) -> None:
    """Commit the guard's closing as forced tokens and end the sequence.

    It ends with "stop" where the closing completed the text, else (nothing was open) with "length".
    """
    constraint = sequence.constraint
    assert constraint is not None
    sequence.closed_out = True
    for token in closing:
        literal = constraint.in_grammar
        constraint.accept((token,))
        literal = literal or constraint.in_grammar
        _append(sequence, token, token_bytes, literal=literal, forced=True)
    sequence.finish("stop" if closing and constraint.may_stop else "length")


def _append(
    sequence: Sequence, token: int, token_bytes: TokenBytes, *, literal: bool, forced: bool
) -> None:
    mark = sequence.request.marks.get(token)
    if mark is not None:
        sequence.emission.push_mark(len(sequence.tokens), mark)
    else:
        sequence.emission.push(len(sequence.tokens), token_bytes[token], literal=literal)
    sequence.tokens.append(token)
    if forced:
        sequence.tally.forced()
