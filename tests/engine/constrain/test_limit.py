"""Compiling that takes too long is a client's error, and what it raises comes through."""

from __future__ import annotations

import threading

import pytest

from agentspec.engine.constrain.limit import within_limit
from agentspec.wire.errors import InvalidSchema


def test_work_gives_its_value_or_its_error():
    assert within_limit(lambda: 3, "p") == 3
    with pytest.raises(KeyError):
        within_limit(lambda: {}["a"], "p")


def test_work_that_burns_its_time_is_left_behind():
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1000))

    try:
        with pytest.raises(InvalidSchema) as caught:
            within_limit(burn, "tools[0].function.parameters", limit_cpu_s=0.05)
    finally:
        stop.set()
    assert caught.value.param == "tools[0].function.parameters"
    assert "takes more than 0.05 s to compile" in caught.value.message
