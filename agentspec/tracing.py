"""W3C Trace Context: which trace a request belongs to. Leaf module: imports no room.

The header is read as the specification's version 00 has it (w3.org/TR/trace-context); one that is
malformed counts as none, as it demands.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass

_HEADER = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
MAX_STATE_CHARS = 512


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of one request (ids in hex).

    parent_id: the caller's span, "" where the trace begins here. span_id: this request's.
    call_id: that of the call to a backend. recorded: whether spans of it are sent anywhere.
    upstream: headers for the backend; none where there is nothing to tell.
    """

    trace_id: str
    parent_id: str
    span_id: str
    call_id: str
    recorded: bool
    upstream: Mapping[str, str]


current: ContextVar[Trace | None] = ContextVar("trace", default=None)
"""The trace of the request that the running task answers."""


def begin(headers: Mapping[str, str], *, exporting: bool = False, chance: float = 1.0) -> Trace:
    """The trace of a request with these headers (names in lower case).

    exporting: spans are sent to a collector; chance: of a trace that begins here to be recorded. A
    caller's word on that is kept. Without export a caller's header goes on as it came, so that his
    trace stays whole, and a trace that begins here is known to the logs alone.
    """
    seed = os.urandom(33)
    span_id, call_id = seed[:8].hex(), seed[8:16].hex()
    given = headers.get("traceparent", "").strip()
    found = _HEADER.fullmatch(given)
    if found is None or not _is_valid(found):
        trace_id = seed[16:32].hex()
        recorded = exporting and seed[32] < chance * 256
        upstream = {"traceparent": _header(trace_id, call_id, recorded)} if exporting else {}
        return Trace(trace_id, "", span_id, call_id, recorded, upstream)
    trace_id, parent_id = found.group(2), found.group(3)
    sampled = bool(int(found.group(4), 16) & 1)
    upstream = {"traceparent": _header(trace_id, call_id, sampled) if exporting else given}
    state = headers.get("tracestate", "")
    if state and len(state) <= MAX_STATE_CHARS:
        upstream["tracestate"] = state
    return Trace(trace_id, parent_id, span_id, call_id, exporting and sampled, upstream)


def _is_valid(found: re.Match[str]) -> bool:
    version, trace_id, parent_id, _, more = found.groups()
    zeros = int(trace_id, 16) == 0 or int(parent_id, 16) == 0
    return version != "ff" and not zeros and (version != "00" or more is None)


def _header(trace_id: str, span_id: str, sampled: bool) -> str:
    return f"00-{trace_id}-{span_id}-{'01' if sampled else '00'}"
