"""Time adds up exactly; the close-out guard looks when it must."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agentspec.engine.closeout import WINDOW_TOKENS, CloseOut
from agentspec.engine.constrain import Constraint
from agentspec.engine.meter import Bill, Meter, MeteredConstraint, split
from tests.engine.core.toy import JSON_LIKE, A, B, DfaSession


class HandClock:
    """Nanoseconds, moved by hand."""

    def __init__(self) -> None:
        self.now_ns = 5

    def __call__(self) -> int:
        return self.now_ns


@given(st.integers(0, 10**9), st.lists(st.integers(0, 99), min_size=1).filter(any))
def test_split_is_whole_fair_and_complete(total, weights):
    parts = split(total, weights)
    assert sum(parts) == total
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part - total * weight / sum(weights)) < 1
        assert weight or not part


def test_a_step_is_split_by_measurement_then_rows():
    clock = HandClock()
    meter, first, second = Meter(clock), Bill(), Bill()
    meter.start()
    with meter.drafting([first]):
        clock.now_ns += 2_000
        first.grammar_ns += 1_500
        clock.now_ns += 1_500
    first.decode_rows, second.prefill_rows = 1, 3
    clock.now_ns += 40_700
    meter.settle([first, second])
    assert (first.busy.draft, first.busy.grammar, first.busy.decode) == (2, 1, 10)
    assert (second.busy.prefill, second.busy.decode) == (31, 0)
    assert meter.busy.prefill + meter.busy.decode + meter.busy.draft + meter.busy.grammar == 44
    assert not first.open and not second.open


def test_fractions_of_a_microsecond_are_not_lost():
    clock = HandClock()
    meter, bill = Meter(clock), Bill()
    for _ in range(10):
        meter.start()
        bill.grammar_ns += 300
        bill.decode_rows = 1
        clock.now_ns += 700
        meter.settle([bill])
    assert (bill.busy.grammar, bill.busy.decode) == (3, 4)


def test_a_step_that_only_ends_sequences_is_shared_and_idle_time_is_nobodys():
    clock = HandClock()
    meter, bills = Meter(clock), [Bill(), Bill()]
    meter.start()
    clock.now_ns += 9_000
    meter.settle(bills)
    assert sorted(bill.busy.decode for bill in bills) == [4, 5]
    clock.now_ns += 10**9
    meter.start()
    clock.now_ns += 10**9
    meter.settle([])
    assert meter.busy.decode == 9


class TimedSession(DfaSession):
    """Every call takes a microsecond."""

    clock: HandClock

    def allows(self, token: int) -> bool:
        self.clock.now_ns += 1_000
        return super().allows(token)


def test_calls_of_a_constraint_and_its_clones_are_charged():
    clock, bill = HandClock(), Bill()
    session = TimedSession(JSON_LIKE, [JSON_LIKE.start])
    session.clock = clock
    metered: Constraint = MeteredConstraint(session, bill, clock)
    assert not metered.allows(A)
    assert bill.grammar_ns == 1_000
    clone = metered.clone()
    clone.accept(clone.forced(2))
    assert (session.state, clone.forced(1)) == ("start", [B])


class Script:
    """A constraint whose closing has the length that the test sets."""

    def __init__(self) -> None:
        self.length = 3
        self.asked: list[int] = []

    def closing(self, limit: int) -> list[int] | None:
        self.asked.append(limit - WINDOW_TOKENS)
        return [0] * self.length if self.length <= limit else None


def test_far_from_the_limit_the_guard_looks_rarely():
    script, guard = Script(), CloseOut(4096)
    for remaining in range(4096, WINDOW_TOKENS, -1):
        assert guard.check(script, remaining) is None  # type: ignore[arg-type]
    assert script.asked == [2048, 1024, 512, 256, 128, 64]


def test_a_long_closing_widens_the_window():
    script, guard = Script(), CloseOut(1000)
    script.length = 200
    for remaining in range(1000, 199, -1):
        assert guard.check(script, remaining) is None  # type: ignore[arg-type]
    assert guard.check(script, 199) == [0] * 200  # type: ignore[arg-type]
    assert script.asked == [1000, 500, *range(400, 198, -1)]


def test_a_closing_that_is_more_than_half_of_the_budget_is_seen_in_time():
    script, guard = Script(), CloseOut(200)
    script.length = 107
    for remaining in range(200, 106, -1):
        assert guard.check(script, remaining) is None  # type: ignore[arg-type]
    assert guard.check(script, 106) == [0] * 107  # type: ignore[arg-type]


def test_where_no_closing_is_found_it_is_looked_for_less_often():
    script, guard = Script(), CloseOut(100)
    script.length = 10_000
    for remaining in range(100, 0, -1):
        assert guard.check(script, remaining) is None  # type: ignore[arg-type]
    assert script.asked[:5] == [100, 75, 56, 42, 31] and len(script.asked) < 16


def test_a_token_that_opens_too_much_is_taken_back():
    script, guard = Script(), CloseOut(20)
    assert guard.check(script, 20) is None  # type: ignore[arg-type]
    script.length = 30
    assert guard.check(script, 19) == [0, 0, 0]  # type: ignore[arg-type]


def test_along_the_closing_nothing_is_searched():
    script, guard = Script(), CloseOut(20)
    for remaining in (20, 19, 18, 17):
        assert guard.check(script, remaining, 0) is None  # type: ignore[arg-type]
    assert script.asked == [20]
    assert guard.check(script, 16, 0) is None  # type: ignore[arg-type]
    assert script.asked == [20, 16]


def test_a_text_that_never_could_be_closed_goes_on():
    script, guard = Script(), CloseOut(20)
    script.length = 30
    assert [guard.check(script, n) for n in range(20, 0, -1)] == [None] * 20  # type: ignore[arg-type]
