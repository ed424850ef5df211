"""When a backend is left alone, for how long, and how it comes back."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentspec.routing.circuit import IN_A_ROW, LONGEST_TOLD_S, Circuits, retry_after_s
from agentspec.wire.errors import UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from tests.routing.scripted import Clock

AWAY = UpstreamUnreachable("x")
BROKEN = UpstreamFailed("x", status=500)


def busy(after: str | None = None) -> UpstreamFailed:
    headers = {} if after is None else {"Retry-After": after}
    return UpstreamFailed("x", status=429, headers=headers)


@pytest.mark.parametrize("error", [BROKEN, UpstreamTimeout("x"), UpstreamFailed("x")], ids=repr)
def test_other_failures_open_it_when_they_come_in_a_row(error):
    circuits = Circuits(Clock())
    for _ in range(IN_A_ROW - 1):
        circuits.failed("a", error)
        assert circuits.ready("a")
    circuits.succeeded("a")
    for _ in range(IN_A_ROW):
        assert circuits.ready("a")
        circuits.failed("a", error)
    assert not circuits.ready("a") and "cooling down for 1.0 s" in circuits.why("a")


def test_one_request_finds_out_whether_it_is_back():
    clock = Clock()
    circuits = Circuits(clock)
    circuits.failed("a", AWAY)
    assert not circuits.ready("a")
    clock.now_s += 1.0
    assert circuits.ready("a")
    circuits.enter("a")
    assert not circuits.ready("a") and "another request" in circuits.why("a")
    circuits.failed("a", BROKEN)  # any failure of that one opens it again, for longer
    assert circuits.remaining_s("a") == 2.0
    clock.now_s += 2.0
    circuits.enter("a")
    circuits.left("a")  # its client left: somebody else finds out
    assert circuits.ready("a")
    circuits.enter("a")
    circuits.succeeded("a")
    assert circuits.ready("a") and circuits.proven("a")
    circuits.failed("a", AWAY)
    assert circuits.remaining_s("a") == 1.0 and not circuits.proven("a")


def test_retry_after_is_honoured_and_a_later_one_wins():
    clock = Clock()
    circuits = Circuits(clock)
    circuits.failed("a", busy("7"))
    assert circuits.remaining_s("a") == 7.0
    circuits.failed("a", busy("20"))
    assert circuits.remaining_s("a") == 20.0
    circuits.failed("a", busy("3"))  # never sooner than was told before
    assert circuits.remaining_s("a") == 20.0
    circuits.failed("b", busy())
    assert circuits.remaining_s("b") == 1.0


NOW_S = 1_790_000_000.0
LATER = datetime.fromtimestamp(NOW_S + 30, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        (" 2 ", 2.0),
        ("0", 0.0),
        ("-3", 0.0),
        ("nan", 0.0),
        ("soon", 0.0),
        ("", 0.0),
        ("1e9", LONGEST_TOLD_S),
        (LATER, 30.0),
        ("Mon, 01 Jan 2024 00:00:00 GMT", 0.0),
    ],
)
def test_what_retry_after_says(text, seconds):
    assert retry_after_s({"retry-after": text}, NOW_S) == seconds
    assert retry_after_s({}, NOW_S) == 0.0
