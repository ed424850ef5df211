"""Whose turn it is: tenants, classes of priority, a full queue; and that texts don't know of it."""

from __future__ import annotations

import pytest

from agentspec.engine.cost import CostCurve
from agentspec.engine.sampling import SamplingParams
from agentspec.settings_scheduling import SchedulingSettings
from agentspec.wire.errors import Overloaded
from tests.engine.core.world import World, make

RISING = CostCurve((1, 4, 8, 64), (4e-6, 5e-6, 9e-6, 60e-6), (1, 8), (1e-9, 2e-9))
"""In the range of the toy's clock: some drafts pay, some do not."""


def _order(world: World, *names: str) -> list[str]:
    """The order in which the requests ended."""
    world.run()
    return [name for name in world.ended if name in names]


def test_a_tenant_with_many_requests_does_not_keep_another_waiting():
    world = World(max_sequences=1)
    world.add(*(make(f"many{i}", cache_scope="many", max_tokens=8) for i in range(4)))
    world.step()
    world.add(make("one", cache_scope="one", max_tokens=8))
    assert _order(world, "one", *(f"many{i}" for i in range(4)))[1] == "one"


def test_tenants_take_turns_by_the_work_done_for_them():
    """One asks for long answers, the other for short ones: after a long one come short ones."""
    world = World(max_sequences=1)
    long = [make(f"long{i}", cache_scope="a", max_tokens=40) for i in range(2)]
    short = [make(f"short{i}", cache_scope="b", max_tokens=2) for i in range(3)]
    world.add(*long, *short)
    assert _order(world, *(r.id for r in long + short))[-1] == "long1"


def test_one_tenant_is_served_as_it_came():
    world = World(max_sequences=1)
    world.add(*(make(f"r{i}", max_tokens=3) for i in range(5)))
    assert _order(world, *(f"r{i}" for i in range(5))) == [f"r{i}" for i in range(5)]


def test_interactive_requests_take_the_place_of_batch_ones():
    world = World(max_sequences=2)
    world.add(*(make(f"batch{i}", priority=-1, max_tokens=30) for i in range(2)))
    for _ in range(4):
        world.step()
    world.add(*(make(f"now{i}", max_tokens=4) for i in range(2)))
    order = _order(world, "batch0", "batch1", "now0", "now1")
    assert order[:2] == ["now0", "now1"]
    assert world.engine.stats().preemptions >= 1
    alone = World().run(make("batch0", max_tokens=30))["batch0"].text
    assert world.told["batch0"].text == world.told["batch1"].text == alone


def test_batch_requests_do_not_push_each_other_out():
    world = World(max_sequences=1)
    world.add(*(make(f"batch{i}", priority=-1, max_tokens=9) for i in range(3)))
    world.run()
    assert world.engine.stats().preemptions == 0


def test_a_full_queue_tells_when_to_come_back():
    world = World(max_sequences=1, max_waiting=1)
    world.add(make("runs"))
    world.step()
    world.add(make("waits"))
    with pytest.raises(Overloaded) as refused:
        world.engine.add(make("refused"))
    assert 1 <= int(refused.value.headers["retry-after"]) <= 60
    world.run()


@pytest.mark.parametrize("mode", ["adaptive", "k2", "table", "switch60", "off"])
@pytest.mark.parametrize("policy", ["auto", "throughput", "latency", "slo"])
def test_no_text_depends_on_load_mode_or_policy(mode: str, policy: str):
    """Greedy and seeded texts of twelve requests together are those of each alone, unspeculated."""
    scheduling = SchedulingSettings(
        mode=mode,
        policy=policy,  # pyright: ignore[reportArgumentType]
        tpot_ms=0.01 if policy == "slo" else None,
    )
    sources = [("oracle",), ("echo", "oracle"), ("dense",), ("suffix",)]

    def request(number: int, **more):
        seed = None if number % 2 else number
        sampling = SamplingParams(temperature=0.0 if seed is None else 1.0, seed=seed)
        prompt = [1 + (number + i) % 9 for i in range(5 + number)]
        return make(f"r{number}", prompt=prompt, sampling=sampling, max_tokens=14, **more)

    busy = World(curve=RISING, max_sequences=5, scheduling=scheduling)
    busy.add(
        *(
            request(n, sources=sources[n % 4], priority=-(n % 3 == 0), cache_scope=f"s{n % 2}")
            for n in range(12)
        )
    )
    busy.run()
    for number in range(12):
        alone = World().run(request(number))[f"r{number}"]
        assert busy.told[f"r{number}"].text == alone.text


def test_a_tenants_long_prompts_keep_nobody_waiting_for_more_than_one():
    """Six long prompts of one tenant are there when another's short one comes."""
    world = World(pages=512, max_sequences=8, step_tokens=16)
    long = [3, 1, 4, 1, 5] * 24
    world.add(*(make(f"long{i}", prompt=long, cache_scope="a", max_tokens=1) for i in range(6)))
    world.step()
    world.add(make("short", cache_scope="b", max_tokens=1))
    assert _order(world, "short", *(f"long{i}" for i in range(6)))[1] == "short"


def test_prompts_of_equal_tenants_are_read_as_they_came():
    world = World(pages=512, max_sequences=8, step_tokens=16)
    prompt = [3, 1, 4, 1, 5] * 12
    names = [f"r{i}" for i in range(5)]
    world.add(*(make(n, prompt=prompt, cache_scope=n, max_tokens=1) for n in names))
    assert _order(world, *names) == names


def test_interactive_requests_take_the_pages_of_batch_ones():
    """Places are free, pages are not: one batch request holds most of them."""
    world = World(pages=20, max_sequences=4)
    world.add(make("batch", prompt=[1, 2, 3] * 16, priority=-1, max_tokens=24))
    for _ in range(3):
        world.step()
    world.add(make("now", prompt=[4, 5, 6] * 12, max_tokens=4))
    assert _order(world, "batch", "now") == ["now", "batch"]
    assert world.engine.stats().preemptions == 1


def test_batch_requests_give_no_pages_up_for_each_other():
    world = World(pages=20, max_sequences=4)
    world.add(make("first", prompt=[1, 2, 3] * 16, priority=-1, max_tokens=24))
    for _ in range(3):
        world.step()
    world.add(make("second", prompt=[4, 5, 6] * 12, priority=-1, max_tokens=4))
    assert _order(world, "first", "second") == ["first", "second"]


def test_batch_requests_leave_a_part_of_the_queue_to_interactive_ones():
    world = World(max_sequences=1, max_waiting=8)
    world.add(make("runs"))
    world.step()
    world.add(*(make(f"batch{i}", priority=-1) for i in range(6)))
    with pytest.raises(Overloaded):
        world.engine.add(make("batch", priority=-1))
    world.add(make("one"), make("two"))
    with pytest.raises(Overloaded):
        world.engine.add(make("three"))
    world.run()
