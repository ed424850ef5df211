"""Look-around where it means no more than several plain patterns that must hold together.

``^(?=A)(?!B)C`` is: ``^A`` is found, ``^B`` is not, ``^C`` is. Likewise ``C(?<!B)$`` at the very
end. In these places, which is where people put it, the position is fixed, so that each part can be
searched by itself in linear time. Elsewhere look-around is refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_AHEAD = ("(?=", "(?!")
_BEHIND = ("(?<=", "(?<!")
_ANY = re.compile(r"\(\?(?:[=!]|<[=!])")


@dataclass(frozen=True, slots=True)
class Parts:
    """plain: the pattern without look-around. found, absent: what else must (not) be found."""

    plain: str
    found: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def split(pattern: str) -> Parts | None:
    """The parts of a pattern; None where it looks around in a place that cannot be split off.

    A pattern without look-around is its own plain part.
    """
    if not _looks(pattern):
        return Parts(pattern)
    found: list[str] = []
    absent: list[str] = []
    rest = _ahead(pattern, found, absent)
    rest = _behind(rest, found, absent)
    if _looks(rest) or "|" in (text for text, depth in _pieces(rest) if depth == 0):
        return None
    return Parts(rest, tuple(found), tuple(absent))


def _ahead(pattern: str, found: list[str], absent: list[str]) -> str:
    """Take the look-aheads behind a leading ``^`` off."""
    while pattern.startswith("^") and pattern[1:4] in _AHEAD:
        end = _group_end(pattern, 1)
        if end is None:
            break
        held = found if pattern[3] == "=" else absent
        held.append(f"^(?:{pattern[4:end]})")
        pattern = "^" + pattern[end + 1 :]
    return pattern


def _behind(pattern: str, found: list[str], absent: list[str]) -> str:
    """Take the look-behinds before an ending ``$`` off."""
    while pattern.endswith(")$"):
        start = next(
            (i for i in _group_starts(pattern) if _group_end(pattern, i) == len(pattern) - 2), None
        )
        if start is None or not pattern.startswith(_BEHIND, start):
            break
        held = found if pattern[start + 3] == "=" else absent
        held.append(f"(?:{pattern[start + 4 : -2]})$")
        pattern = pattern[:start] + "$"
    return pattern


def _pieces(pattern: str) -> Iterator[tuple[str, int]]:
    """(atom, depth of groups around it): escapes and classes are one atom each."""
    i, depth = 0, 0
    while i < len(pattern):
        size = _atom_size(pattern, i)
        atom = pattern[i : i + size]
        depth -= atom == ")"
        yield atom, depth
        depth += atom == "("
        i += size


def _atom_size(pattern: str, i: int) -> int:
    if pattern[i] == "\\":
        return 2
    if pattern[i] != "[":
        return 1
    end = i + 1
    while end < len(pattern) and pattern[end] != "]":
        end += 2 if pattern[end] == "\\" else 1
    return end + 1 - i


def _group_starts(pattern: str) -> Iterator[int]:
    i = 0
    while i < len(pattern):
        if pattern[i] == "(":
            yield i
        i += _atom_size(pattern, i)


def _group_end(pattern: str, start: int) -> int | None:
    """Where the group that opens at ``start`` closes."""
    i, depth = start, 0
    while i < len(pattern):
        depth += (pattern[i] == "(") - (pattern[i] == ")")
        if depth == 0:
            return i
        i += _atom_size(pattern, i)
    return None


def _looks(pattern: str) -> bool:
    return any(_ANY.match(pattern, i) for i in _group_starts(pattern))
