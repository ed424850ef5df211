"""Which of several equal engines: the one that has the session's text, unless it is too busy.

Rendezvous hashing (Thaler and Ravishankar, 1998) with bounded loads (Mirrokni, Thorup and
Zadimoghaddam, arXiv 1608.01350): every gateway comes to the same engine without asking another, an
engine that comes or goes moves only its own sessions, and none gets more than ``SLACK`` times its
share.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence

SLACK = 1.25


def ranked(key: str, members: Sequence[str]) -> list[str]:
    """The members in this key's own order, the same wherever it is asked."""
    return sorted(members, key=lambda member: _weight(key, member), reverse=True)


def member_for(key: str, members: Sequence[str], loads: Mapping[str, float]) -> str:
    """The first in the key's order that has room. loads: requests there now."""
    total = sum(loads.get(member, 0.0) for member in members)
    room = math.ceil(SLACK * (total + 1.0) / len(members))
    order = ranked(key, members)
    return next((member for member in order if loads.get(member, 0.0) < room), order[0])


def _weight(key: str, member: str) -> bytes:
    text = f"{len(member)}:{member}{key}".encode("utf-8", "surrogatepass")
    return hashlib.blake2b(text, digest_size=8).digest()
