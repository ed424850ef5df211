"""The engine as a process of its own: a socket that was handed over, signals, death."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.engine.model import tiny, tiny_vocabulary

CONFIG = """
[engine]
weights = "{weights}"
model = "tiny"
dtype = "fp32"
threads = 1
context_tokens = 512
kv_tokens = 2048
step_tokens = 128
"""
DYING = """
from agentspec.engine.core import Engine
def step(self):
    raise RuntimeError("bits fell over")
Engine.step = step
"""
RUN = """
import sys
from agentspec.engine.server import run
from agentspec.settings import load
run(load(sys.argv[1]), fd=int(sys.argv[2]))
"""
LONG = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "stream": True,
    "logit_bias": {"2": -100},
    "temperature": 2,
}


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., tuple[subprocess.Popen, int]]]:
    """``start(patch)``: (engine process, port); it serves on a socket that the test made."""
    shape = tiny.Shape(vocab=tiny_vocabulary.SIZE + 1, context=512)
    weights = tiny_vocabulary.write_folder(tmp_path / "weights")
    tiny.write_folder(weights, shape, tiny.random_weights(shape), eos_token_id=2)
    config = tmp_path / "settings.toml"
    config.write_text(CONFIG.format(weights=weights))
    children = []

    def run(patch: str = "") -> tuple[subprocess.Popen, int]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            fd = listener.fileno()
            child = subprocess.Popen(
                [sys.executable, "-c", patch + RUN, str(config), str(fd)],
                pass_fds=[fd],
                cwd=tmp_path,
                env=os.environ | {"XDG_CACHE_HOME": str(tmp_path)},
                stderr=subprocess.PIPE,
                text=True,
            )
            children.append(child)
            return child, listener.getsockname()[1]

    yield run
    for child in children:
        child.kill()
        child.communicate()


@contextmanager
def asked(port: int, body: dict) -> Iterator[http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    with closing(connection):
        connection.request("POST", "/v1/chat/completions", json.dumps(body))
        with connection.getresponse() as answer:
            yield answer


def test_a_signal_ends_answers_in_order_and_the_process(start):
    child, port = start()
    with asked(port, LONG) as answer:
        assert answer.status == 200
        assert b'"role":"assistant"' in answer.readline()
        child.send_signal(signal.SIGTERM)
        *_, last = answer.read().decode().strip().split("\n\n")
    ended = last == "data: [DONE]"
    assert ended or json.loads(last.removeprefix("data: "))["error"]["code"] == "overloaded"
    assert child.wait(30) == -signal.SIGTERM


def test_a_dead_engine_ends_the_process_and_says_why(start):
    child, port = start(DYING)
    with asked(port, LONG | {"stream": False}) as answer:
        assert answer.status == 500
        assert "bits fell over" in json.loads(answer.read())["error"]["message"]
    _, told = child.communicate(timeout=30)
    assert child.returncode == 1
    assert "the engine died: RuntimeError('bits fell over')" in told
