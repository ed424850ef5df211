"""Slices of limits: they add up, whoever asks, in whatever order, also when holders die."""

from __future__ import annotations

import random
import threading

import pytest
from sqlalchemy import Engine, func, select, update

from agentspec.store.budgets import MOST, period
from agentspec.store.database import connect
from agentspec.store.keys import KeyStore, NewKey, key_owner, project_owner
from agentspec.store.keys_report import overview
from agentspec.store.keys_schema import limit_lease, limit_usage
from agentspec.store.leases import KEEP_MS, LEASE_MS, Ask, Leases
from agentspec.store.record import RequestRecord
from agentspec.store.schema import request
from tests.store.ledger import EPOCH_MS, insert
from tests.store.test_keys import Clock

PLACE = ("key:k", "usd_total", 0)
LIMIT = 1000


@pytest.fixture
def clock() -> Clock:
    return Clock()


def used(engine: Engine, place=PLACE) -> int:
    query = select(limit_usage.c.used).where(
        limit_usage.c.owner == place[0],
        limit_usage.c.kind == place[1],
        limit_usage.c.start_ms == place[2],
    )
    with engine.connect() as connection:
        return connection.execute(query).scalar() or 0


def leased(engine: Engine, place=PLACE) -> int:
    query = select(func.sum(limit_lease.c.amount)).where(limit_lease.c.kind == place[1])
    with engine.connect() as connection:
        return int(connection.execute(query).scalar() or 0)


def test_used_leased_and_remaining_add_up(engine, clock):
    """Two holders exchange at random; a model in plain Python says what they may get."""
    rng = random.Random(5)
    holders = [Leases(engine, name, clock) for name in "ab"]
    held = [0, 0]
    spent_in_all = 0
    for _ in range(120):
        who = rng.randrange(2)
        spent = rng.randrange(held[who] + 1)
        give = rng.randrange(held[who] - spent + 1)
        need, spare = rng.choice([0, 1, 40, 300]), rng.choice([0, 10, 500])
        held[who] -= spent + give
        spent_in_all += spent
        ask = Ask(PLACE, LIMIT, spent, held[who], need, spare)
        grant = holders[who].exchange([ask])[PLACE]
        free = LIMIT - spent_in_all - sum(held)
        assert grant.granted >= min(need, free)
        assert grant.granted <= min(need, free) + min(spare, (free - min(need, free)) // 8)
        held[who] += grant.granted
        assert grant.remaining == LIMIT - spent_in_all - sum(held) >= 0
        assert (used(engine), leased(engine)) == (spent_in_all, sum(held))
    assert spent_in_all > LIMIT // 2


def test_several_limits_in_one_exchange(engine, clock):
    other = ("project:p", "rpm", 60_000)
    found = Leases(engine, "a", clock).exchange(
        [Ask(other, 3, need=5), Ask(PLACE, LIMIT, need=5), Ask(("key:z", "tpm", 0), 0, need=1)]
    )
    assert found[other].granted == 3 and found[PLACE].granted == 5
    assert found["key:z", "tpm", 0].granted == 0


def test_more_may_have_been_used_than_was_held(engine, clock):
    """A request came to more than was reserved: it is booked, and nothing remains."""
    a = Leases(engine, "a", clock)
    a.exchange([Ask(PLACE, LIMIT, need=LIMIT)])
    grant = a.exchange([Ask(PLACE, LIMIT, spent=LIMIT + 70, held=-70, need=1)])[PLACE]
    assert (grant.granted, grant.remaining, used(engine)) == (0, 0, LIMIT + 70)


def test_the_slice_of_one_that_died_is_free_again(engine, clock):
    a, b = Leases(engine, "a", clock), Leases(engine, "b", clock)
    a.exchange([Ask(PLACE, LIMIT, need=LIMIT)])
    clock.now_ms += LEASE_MS - 1
    assert b.exchange([Ask(PLACE, LIMIT, need=10)])[PLACE].granted == 0
    clock.now_ms += 1
    assert b.exchange([Ask(PLACE, LIMIT, need=LIMIT)])[PLACE].granted == LIMIT
    assert leased(engine) == LIMIT


def test_what_the_dead_one_had_spent_is_found_in_the_ledger(url, engine, clock):
    keys = KeyStore(engine, clock)
    keys.create_project("p")
    key, _ = keys.create(NewKey("k", project="p"))
    other, _ = keys.create(NewKey("other", project="p"))
    rows = [
        RequestRecord(id="1", ts_ms=EPOCH_MS, key_id=key.id, cost_nusd=300),
        RequestRecord(id="2", ts_ms=EPOCH_MS + 1, key_id=key.id, cost_nusd=50),
        RequestRecord(id="3", ts_ms=EPOCH_MS - 1, key_id=key.id, cost_nusd=7),  # the day before
        RequestRecord(id="4", ts_ms=EPOCH_MS, key_id=other.id, cost_nusd=20),
        RequestRecord(id="5", ts_ms=EPOCH_MS, key_id="key-else", cost_nusd=1000),
    ]
    own, shared = (f"key:{key.id}", "usd_day", EPOCH_MS), ("project:p", "usd_day", EPOCH_MS)
    a, b = Leases(engine, "a", clock), Leases(engine, "b", clock)
    a.exchange([Ask(own, LIMIT, need=900), Ask(shared, LIMIT, need=900)])
    insert(url, rows)
    a.exchange([Ask(own, LIMIT, spent=300, held=600), Ask(shared, LIMIT, held=900)])
    clock.now_ms += LEASE_MS
    found = b.exchange([Ask(own, LIMIT, need=LIMIT), Ask(shared, LIMIT, need=LIMIT)])
    assert (found[own].granted, found[shared].granted) == (LIMIT - 350, LIMIT - 370)
    assert (used(engine, own), used(engine, shared)) == (350, 370)


def test_a_budget_set_later_knows_what_was_spent_in_its_period(url, engine, clock):
    """Set, taken away and set again; the report says the same before anybody has asked."""
    keys = KeyStore(engine, clock)
    keys.create_project("p")
    key, _ = keys.create(NewKey("k", project="p"))
    start_ms = period("usd_day", EPOCH_MS).start_ms
    spent = [(start_ms - 1, 7), (start_ms, 300), (EPOCH_MS, 50)]
    insert(
        url,
        [
            RequestRecord(id=str(n), ts_ms=at, key_id=key.id, cost_nusd=cost)
            for n, (at, cost) in enumerate(spent)
        ],
    )
    clock.now_ms = EPOCH_MS + 10
    own, shared = key_owner(key.id), project_owner("p")
    day, always = (own, "usd_day", start_ms), (shared, "usd_total", 0)
    keys.set_limits(own, {"usd_day": LIMIT})
    keys.set_limits(shared, {"usd_total": LIMIT})

    def told() -> list[int]:
        found = overview(engine, clock.now_ms)
        return [use.used for one in (*found.keys, *found.projects) for use in one.uses]

    assert told() == [350, 357]
    a = Leases(engine, "a", clock)
    grants = a.exchange([Ask(day, LIMIT, need=LIMIT), Ask(always, LIMIT, need=LIMIT)])
    assert (grants[day].granted, grants[always].granted) == (LIMIT - 350, LIMIT - 357)
    assert told() == [350, 357]
    a.exchange([Ask(day, LIMIT), Ask(always, LIMIT)])
    keys.set_limits(own, {"usd_day": None})
    insert(url, [RequestRecord(id="x", ts_ms=EPOCH_MS + 7, key_id=key.id, cost_nusd=1000)])
    keys.set_limits(own, {"usd_day": 2 * LIMIT})
    assert a.exchange([Ask(day, 2 * LIMIT, need=LIMIT)])[day].granted == 2 * LIMIT - 1350
    keys.set_limits(own, {"usd_day": 3 * LIMIT})  # a change counts nothing twice
    assert told() == [1350, 357]


def test_absurd_values_are_bounded_and_hold_up_nobody_else(engine, clock):
    other, bad = ("key:o", "tpm", EPOCH_MS), ("key:bad", "tpm", EPOCH_MS)
    a = Leases(engine, "a", clock)
    for _ in range(2):
        found = a.exchange([Ask(other, 9, need=1), Ask(PLACE, LIMIT, spent=10**23, need=1)])
        assert (found[other].granted, found[PLACE].granted) == (1, 0)
        assert used(engine) == MOST
    found = a.exchange([Ask(bad, 10**30, need=10**30), Ask(other, 9, spent=1, need=2)])
    assert bad not in found and found[other].granted == 2
    assert (used(engine, other), used(engine, bad)) == (1, 0)


def test_costs_whose_sum_no_integer_holds_are_a_budget_used_up(url, engine, clock):
    key, _ = KeyStore(engine, clock).create(NewKey("k"))
    place = (f"key:{key.id}", "usd_day", EPOCH_MS)
    insert(url, [RequestRecord(id=str(n), ts_ms=EPOCH_MS, key_id=key.id) for n in range(3)])
    with engine.begin() as connection:
        connection.execute(update(request).values(cost_nusd=2**63 - 1))
    a, b = Leases(engine, "a", clock), Leases(engine, "b", clock)
    a.exchange([Ask(place, LIMIT, need=1)])
    clock.now_ms += LEASE_MS
    assert b.exchange([Ask(place, LIMIT, need=1)])[place].granted == 0
    assert used(engine, place) == MOST


def test_leaving_gives_everything_back(engine, clock):
    a, b = Leases(engine, "a", clock), Leases(engine, "b", clock)
    a.exchange([Ask(PLACE, LIMIT, need=LIMIT)])
    a.exchange([Ask(PLACE, LIMIT, spent=1, held=999)])
    a.leave()
    assert b.exchange([Ask(PLACE, LIMIT, need=LIMIT)])[PLACE].granted == LIMIT - 1


def test_past_minutes_are_forgotten_and_money_is_not(engine, clock):
    minute = ("key:k", "rpm", clock.now_ms)
    a = Leases(engine, "a", clock)
    asks = [Ask(minute, 9, need=1), Ask(PLACE, LIMIT, need=1)]
    a.exchange(asks)
    a.exchange([Ask(minute, 9, spent=1), Ask(PLACE, LIMIT, spent=1)])
    clock.now_ms += 2 * KEEP_MS
    a.exchange([Ask(PLACE, LIMIT)])
    assert (used(engine, minute), used(engine)) == (0, 1)


def test_many_holders_at_once_get_no_more_than_there_is(url):
    """Real connections, real locks; holders touch the limits in different orders."""
    places = [(f"key:{n}", "tpm", EPOCH_MS) for n in range(4)]
    got: list[int] = []
    failures: list[Exception] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        engine = connect(url)
        leases = Leases(engine, f"holder{seed}", Clock())
        try:
            held = dict.fromkeys(places, 0)
            for _ in range(12):
                asks = [Ask(p, 500, held=held[p], need=rng.randrange(40)) for p in places]
                rng.shuffle(asks)
                for place, grant in leases.exchange(asks).items():
                    held[place] += grant.granted
            got.append(sum(held.values()))
        except Exception as error:
            failures.append(error)
        finally:
            engine.dispose()

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == [] and sum(got) == 4 * 500
