"""The stepping thread: it sleeps while idle, takes all or nothing, leaves nobody waiting."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable

import pytest

from agentspec.engine.loop import EngineLoop
from agentspec.engine.request import GenerationRequest, Output
from agentspec.wire.errors import InternalError, InvalidRequest, Overloaded
from tests.engine.server.fakes import ScriptedEngine, says


def request(id: str) -> GenerationRequest:
    return GenerationRequest(id=id, prompt=[1], max_tokens=1)


Start = Callable[..., EngineLoop]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    loops: list[EngineLoop] = []

    def build(engine, **options) -> EngineLoop:
        loops.append(EngineLoop(engine, **options))
        loops[-1].start()
        return loops[-1]

    yield build
    for loop in loops:
        await loop.stop()


async def test_it_sleeps_while_there_is_no_work(start: Start):
    asked = 0

    class Counting(ScriptedEngine):
        def has_work(self) -> bool:
            nonlocal asked
            asked += 1
            return super().has_work()

    engine = Counting(lambda _: says("x"))
    loop = start(engine)
    await loop.call(lambda: None)
    before = asked
    await asyncio.sleep(0.05)
    assert asked <= before + 2 and engine.steps == 0


async def test_outputs_come_in_order_until_the_end(start: Start):
    loop = start(ScriptedEngine(lambda _: says("a", "b", "c")))
    subscription = await loop.submit([request("1")])
    texts = []
    while not subscription.finished:
        texts += [output.text for output in await subscription.take()]
    assert texts == ["a", "b", "c"]


async def test_a_refused_request_leaves_nothing(start: Start):
    engine = ScriptedEngine(lambda _: says("x"))
    engine.refusal = InvalidRequest("not this one")
    loop = start(engine)
    with pytest.raises(InvalidRequest):
        await loop.submit([request("1"), request("2")])
    engine.refusal = None
    await loop.call(lambda: None)
    assert (engine.added, engine.running) == ([], {})


async def test_choices_wait_for_the_prompt_of_the_first(start: Start):
    gate = threading.Event()
    engine = ScriptedEngine(lambda _: [gate, *says("x", "y")])
    loop = start(engine)
    subscription = await loop.submit([request("1"), request("2"), request("3")])
    await loop.call(lambda: None)
    assert [r.id for r in engine.added] == ["1"]
    gate.set()
    ended = []
    while not subscription.finished:
        ended += [o.id for o in await subscription.take() if o.finish_reason]
    assert sorted(ended) == ["1", "2", "3"]


async def test_a_full_queue_only_delays_the_other_choices(start: Start):
    class Narrow(ScriptedEngine):
        def add(self, request: GenerationRequest) -> None:
            if self.running:
                raise Overloaded("one at a time")
            super().add(request)

    loop = start(Narrow(lambda _: says("x", "y")))
    subscription = await loop.submit([request("1"), request("2"), request("3")])
    texts: dict[str, str] = {}
    while not subscription.finished:
        for output in await subscription.take():
            texts[output.id] = texts.get(output.id, "") + output.text
    assert texts == {"1": "xy", "2": "xy", "3": "xy"}


async def test_choices_that_wait_are_given_up_too(start: Start):
    gate = threading.Event()
    engine = ScriptedEngine(lambda _: [gate, *says("x")])
    loop = start(engine)
    subscription = await loop.submit([request("1"), request("2")])
    loop.abort(subscription)
    gate.set()
    await loop.call(lambda: None)
    assert ([r.id for r in engine.added], engine.running) == (["1"], {})


async def test_an_unexpected_error_of_add_is_one_requests_error(start: Start):
    class Broken(ScriptedEngine):
        def add(self, request: GenerationRequest) -> None:
            if request.id == "bad":
                raise ValueError("no such page")
            super().add(request)

    loop = start(Broken(lambda _: says("x")))
    with pytest.raises(InternalError, match="no such page"):
        await loop.submit([request("bad")])
    subscription = await loop.submit([request("good")])
    assert [output.text for output in await subscription.take()] == ["x"]


async def test_who_leaves_while_being_taken_leaves_nothing(start: Start):
    gate = threading.Event()
    engine = ScriptedEngine(lambda r: says("x") if r.id == "first" else [gate, *says("x")])
    loop = start(engine)
    blocked = threading.Event()
    entered = threading.Event()
    busy = asyncio.create_task(loop.call(lambda: (entered.set(), blocked.wait(10))))
    await asyncio.to_thread(entered.wait, 10)
    asking = asyncio.create_task(loop.submit([request("late")]))
    await asyncio.sleep(0)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    blocked.set()
    await busy
    assert await loop.call(lambda: dict(engine.running)) == {}
    assert engine.aborted == ["late"]


async def test_the_last_output_of_an_aborted_sequence_is_still_counted(start: Start):
    ended: list[Output] = []

    class Telling(ScriptedEngine):
        def abort(self, id: str) -> None:
            if id in self.running:
                self.running[id].clear()
                self.running[id].extend(says("", finish="abort"))

    gate = threading.Event()
    engine = Telling(lambda _: [gate, *says("never")])
    loop = start(engine, on_end=ended.append)
    subscription = await loop.submit([request("1")])
    loop.abort(subscription)
    while not ended:
        await asyncio.sleep(0)
    assert [(output.id, output.finish_reason) for output in ended] == [("1", "abort")]


async def test_a_failed_step_reaches_everyone_once(start: Start):
    deaths: list[BaseException] = []
    gate = threading.Event()
    loop = start(ScriptedEngine(lambda r: [*says("a", "x")[:1], gate, RuntimeError("boom")]))
    loop.on_death = deaths.append
    first = await loop.submit([request("1"), request("2")])
    second = await loop.submit([request("3")])
    await loop.call(lambda: None)
    gate.set()
    for subscription in (first, second):
        texts = []
        with pytest.raises(InternalError, match="boom"):
            while True:
                texts += [output.text for output in await subscription.take()]
        assert set(texts) == {"a"} and subscription.finished
    assert [str(death) for death in deaths] == ["boom"]
    assert not loop.alive
    with pytest.raises(Overloaded):
        await loop.submit([request("4")])


async def test_stopping_answers_who_still_waits():
    gate = threading.Event()
    loop = EngineLoop(ScriptedEngine(lambda _: [gate, *says("never")]))
    loop.start()
    subscription = await loop.submit([request("1")])
    await loop.stop()
    with pytest.raises(Overloaded):
        await subscription.take()
    with pytest.raises(Overloaded):
        await loop.stats()
