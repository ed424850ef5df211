"""What is seen of backends in the background, and what comes of it when they misbehave."""

from __future__ import annotations

import asyncio

from agentspec.backends.load import Load
from agentspec.routing.watch import Watch
from agentspec.wire.errors import UpstreamFailed
from agentspec.wire.service import ModelCard
from tests.routing.scripted import Served


class Telling(Served):
    """A server of one's own. away, mute: it isn't there; it tells no load."""

    away = mute = False
    running = 3.0

    async def health(self) -> bool:
        return not self.away

    async def load(self) -> Load:
        if self.mute:
            raise UpstreamFailed("no page", status=403)
        return Load(running=self.running, waiting=1.0)

    async def models(self) -> list[ModelCard]:
        return [ModelCard(id="m", created=0, context_length=4096), ModelCard(id="n", created=0)]


class Vendor(Served):
    """It must not be asked whether it is there: that would go on all day."""

    async def health(self) -> bool:
        raise AssertionError("asked")


async def test_load_counts_what_was_sent_since():
    watch = Watch({"a": Telling("a")}, 1.0)
    assert watch.load("a", 2) == 2.0  # nothing seen yet: one's own calls
    await watch.look()
    assert watch.load("a", 2) == 4.0
    watch.begun("a")
    watch.begun("nobody")
    assert watch.load("a", 2) == 5.0 and watch.load("a", 9) == 9.0
    await watch.look()
    assert watch.load("a", 0) == 4.0
    assert watch.load("unwatched", 1) == 1.0


async def test_a_server_that_is_away_and_back_again():
    backend = Telling("a")
    watch = Watch({"a": backend}, 1.0)
    backend.away = True
    await watch.look()
    assert not watch.healthy("a") and watch.load("a", 1) == 1.0
    backend.away, backend.mute = False, True
    await watch.look()
    assert watch.healthy("a") and watch.load("a", 1) == 1.0
    assert watch.healthy("unwatched")


async def test_windows_by_model():
    watch = Watch({"a": Telling("a"), "v": Vendor("v")}, 1.0)
    await watch.look()
    assert (watch.window("a", "m"), watch.window("a", "other"), watch.window("v", "m")) == (
        4096,
        4096,  # the only one it tells
        None,
    )


async def test_it_looks_by_itself_until_it_is_closed():
    backend = Telling("a")
    watch = Watch({"a": backend}, 0.001)
    watch.start()
    async with asyncio.timeout(10):
        while watch.load("a", 0) != 4.0:
            await asyncio.sleep(0.001)
        backend.running = 7.0
        while watch.load("a", 0) != 8.0:
            await asyncio.sleep(0.001)
    await watch.aclose()
    await watch.aclose()
    none = Watch({}, 0.001)
    none.start()
    await none.aclose()
