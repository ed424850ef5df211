"""kill -9 of each process under streams: no clean end that isn't one, one row for each answer."""

import asyncio

import pytest

from agentspec.bench import kill

pytestmark = pytest.mark.model


def test_three_kills(model_path):
    rounds = asyncio.run(kill.run(rounds=3, streams=8, model="smollm2-135m-instruct", seed=1))
    assert [r["victim"] for r in rounds] == ["engine", "gateway", "writer"]
    assert [r["wrong"] for r in rounds] == [[], [], []]
    assert sum(r["finished"] + r["broken"] for r in rounds) == 24
