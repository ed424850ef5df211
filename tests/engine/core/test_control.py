"""Control windows: drawn ahead, whole-engine, told truthfully, and never seen in a text."""

from __future__ import annotations

import itertools
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from agentspec.engine.control import ControlWindows
from agentspec.engine.draft import names
from agentspec.engine.report import merged
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import SamplingParams
from agentspec.settings import EngineSettings
from agentspec.wire.extension import SpecReport
from tests.engine.core.reference import Reference
from tests.engine.core.toy import EOS, JSON_LIKE
from tests.engine.core.world import MODEL, World, check_told, make

torch.set_num_threads(1)
S = 10**9
SOURCES = ("oracle", "echo", *names())


class Wall:
    """A clock that moves on by ``tick_ns`` each time it is read."""

    def __init__(self, tick_ns: int = 0, start_ns: int = 0):
        self.now_ns = start_ns
        self.tick_ns = tick_ns

    def __call__(self) -> int:
        self.now_ns += self.tick_ns
        return self.now_ns


class Switched(ControlWindows):
    """A schedule that the test draws: the windows that are off."""

    def __init__(self, off: set[int], clock: Wall):
        super().__init__(0.5, 1.0, 0, clock=clock)
        self.off = off

    def is_off(self, window: int) -> bool:
        return window in self.off


def test_the_share_is_the_share_and_the_draws_are_independent():
    windows = ControlWindows(0.02, 30.0, seed=7)
    off = [windows.is_off(n) for n in range(100_000)]
    assert 1_800 < sum(off) < 2_200  # 2,000 within 4.5 standard deviations
    pairs = sum(a and b for a, b in itertools.pairwise(off))
    assert 12 < pairs < 75  # 40 expected
    assert [n for n in range(1000) if off[n]] != [
        n for n in range(1000) if ControlWindows(0.02, 30.0, seed=8).is_off(n)
    ]


@pytest.mark.parametrize("share, expected", [(0.0, False), (1.0, True)])
def test_the_ends_of_the_share(share: float, expected: bool):
    windows = ControlWindows(share, 30.0, 0)
    assert {windows.is_off(n) for n in range(1000)} == {expected}


def test_another_process_draws_the_same_schedule():
    code = (
        "from agentspec.engine.control import ControlWindows as W\n"
        "w = W(0.3, 30.0, 11)\nprint([n for n in range(200) if w.is_off(n)])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = ControlWindows(0.3, 30.0, 11)
    assert told.stdout.strip() == str([n for n in range(200) if here.is_off(n)])


def test_which_window_a_time_lies_in():
    windows = ControlWindows(0.5, 30.0, 0)
    assert [windows.window_of(at * S) for at in (0, 29, 30, 59, 60)] == [0, 0, 1, 1, 2]


@pytest.mark.parametrize(
    "since, until, off, expected",
    [
        (5.0, 5.9, set(), "on"),
        (5.0, 5.9, {5}, "off"),
        (5.9, 6.0, {6}, "mixed"),  # a straddled border
        (5.0, 8.5, {6}, "mixed"),  # a control window within
        (5.0, 6.5, {5, 6}, "off"),
    ],
)
def test_arm(since: float, until: float, off: set[int], expected: str):
    windows = Switched(off, Wall(start_ns=round(until * S)))
    assert windows.arm(round(since * S)) == expected


def test_without_a_share_or_drafters_there_are_no_windows():
    assert ControlWindows.of(EngineSettings(control_share=0.0)) is None
    assert ControlWindows.of(EngineSettings(draft_sources=[], drafts=[])) is None
    assert ControlWindows.of(EngineSettings(draft_sources=[])) is not None
    assert ControlWindows.of(EngineSettings()) is not None


def test_the_whole_engine_is_off_and_each_request_says_so():
    wall = Wall()
    world = World(control=Switched({1}, wall))
    world.run(make("on", sources=("oracle",)))
    wall.now_ns = S
    world.run(make("off1", sources=("oracle",)), make("off2", sources=("echo", "oracle")))
    wall.now_ns = 2 * S
    world.add(make("straddles", sources=("oracle",)))
    wall.now_ns = 3 * S
    told = world.run()
    assert told["on"].report.window == "on" and told["on"].report.totals()[0] > 0
    for name in ("off1", "off2"):
        assert told[name].report.window == "off"
        assert told[name].report.totals() == (0, 0)
    assert told["straddles"].report.window == "on"  # two windows, both with speculation
    assert len({one.text for one in told.values()}) == 1


def test_a_request_over_a_border_is_mixed_and_drafts_on_one_side_only():
    wall = Wall()
    world = World(control=Switched({1}, wall))
    world.add(make("r", sources=("oracle",), max_tokens=40))
    world.step()
    world.step()
    wall.now_ns = S
    told = world.run()["r"]
    assert told.report.window == "mixed"
    plain = World().run(make("r", max_tokens=40))["r"]
    assert told.report.totals()[0] > 0 and told.report.hist[0] > 10
    assert told.text == plain.text


def test_an_engine_without_windows_tells_none():
    assert World().run(make(sources=("oracle",)))["r"].report.window is None


@settings(max_examples=60)
@given(
    off=st.sets(st.integers(0, 40)),
    tick_ms=st.integers(1, 400),
    seeds=st.lists(st.integers(0, 3), min_size=1, max_size=4),
    temperature=st.sampled_from([0.0, 0.8]),
    constrained=st.booleans(),
    step_tokens=st.sampled_from([3, 8, 64]),
)
def test_the_text_is_the_same_whatever_is_switched(
    off, tick_ms, seeds, temperature, constrained, step_tokens
):
    world = World(
        control=Switched(off, Wall(tick_ms * 10**6)), step_tokens=step_tokens, max_sequences=3
    )
    requests: list[GenerationRequest] = [
        make(
            f"r{number}",
            sampling=SamplingParams(temperature=temperature, seed=seed),
            sources=SOURCES,
            constraint=JSON_LIKE if constrained else None,
            stop_ids=frozenset({EOS}),
        )
        for number, seed in enumerate(seeds)
    ]
    told = world.run(*requests)
    for request in requests:
        check_told(told[request.id], Reference(MODEL, request).decode())
        if told[request.id].report.window == "off":
            assert told[request.id].report.totals() == (0, 0)


@pytest.mark.parametrize(
    "windows, expected",
    [
        (["on", "on"], "on"),
        (["off"], "off"),
        (["on", "off"], "mixed"),
        (["mixed", "off"], "mixed"),
        ([None, None], None),
    ],
)
def test_a_request_of_several_choices_is_in_one_arm_or_mixed(windows, expected):
    assert merged([SpecReport(window=window) for window in windows]).window == expected
