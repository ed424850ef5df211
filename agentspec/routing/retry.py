"""How often a request may be sent upstream again, so that an outage doesn't double its own load.

Each request adds a little to a bucket, each further call takes one token out, and a further call
that works puts it back: a backend that stands in for another may do so for good, while in a full
outage further calls stay below ``SHARE`` of the requests (and the few that lie ready at first).
"""

from __future__ import annotations

from agentspec.wire.errors import (
    CALL_CODES,
    AgentspecError,
    UpstreamFailed,
    UpstreamUnreachable,
)

SHARE = 0.05
AT_FIRST = 3.0
MOST = 10.0
TRIES_OF_ONE = 3
"""Calls of one backend for one request, where no other is left."""
FIRST_WAIT_S = 0.1
LONGEST_WAIT_S = 5.0

# Answers of servers that turned a request away, or broke before they began: asked again, they may
# serve it, and nothing was generated that anybody could bill.
_TURNED_AWAY = (429, 500, 502, 503, 504, 529)
RAN = ("constraint_not_met", *CALL_CODES)
"""The backend served, and what the model said was no good: no word about the backend."""
# Or time is up, or the account is empty: neither is better in a second.
_FINAL = (*RAN, "deadline_exceeded", "insufficient_quota")


class RetryBudget:
    """The bucket of one process."""

    def __init__(self) -> None:
        self._tokens = AT_FIRST

    def request(self) -> None:
        """A request begins."""
        self._tokens = min(MOST, self._tokens + SHARE)

    def take(self) -> bool:
        """Whether a further call may be made; it is then accounted for."""
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True

    def worked(self) -> None:
        """A further call was answered."""
        self._tokens = min(MOST, self._tokens + 1.0)


def again_s(error: AgentspecError, tried: int, told_s: float, jitter: float) -> float | None:
    """How long to wait before the same backend is asked again; None: not at all.

    tried: calls so far. told_s: what its Retry-After says, 0.0 without. jitter: in [0, 1), drawn
    for this wait.
    """
    if tried >= TRIES_OF_ONE or not isinstance(error, UpstreamFailed) or error.code in _FINAL:
        return None
    if not isinstance(error, UpstreamUnreachable) and error.status not in _TURNED_AWAY:
        return None
    if error.headers.get("x-should-retry", "").lower() == "false" or told_s > LONGEST_WAIT_S:
        return None
    wait_s = FIRST_WAIT_S * 2.0 ** (tried - 1)
    return told_s + wait_s * (0.5 + jitter)
