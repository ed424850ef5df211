"""Backends asked for the page of engines: one that answers, one that is away, one of a vendor."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from agentspec.settings import BackendSettings, Settings
from agentspec.supervisor.engine_states import address, engine_states

METRICS = b"""vllm:num_requests_running 3
vllm:num_requests_waiting 2
vllm:kv_cache_usage_perc 0.25
"""


PAGES = {
    "/metrics": METRICS,
    "/version": b'{"version": "0.31.0"}',
    "/get_server_info": b'{"version": "0.5.23", "model_path": "m"}',
    "/props": b'{"build_info": "b6000-abc"}',
}


class Server(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = PAGES.get(self.path, b"{}")
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_each_backend_in_its_way(url: str):
    with socket.create_server(("127.0.0.1", 0)) as free:
        closed = f"http://127.0.0.1:{free.getsockname()[1]}"
    settings = Settings(
        backends={
            "here": BackendSettings(kind="vllm", url=f"{url}/v1"),
            "away": BackendSettings(kind="vllm", url=closed),
            "vendor": BackendSettings(kind="litellm"),
        }
    )
    here, away, vendor = engine_states(settings)
    assert (here.health, here.running, here.waiting, here.kv_used) == ("ok", 3.0, 2.0, 0.25)
    assert here.address == url and here.backend == "here"
    assert (away.health, away.running) == ("takes no requests now", None)
    assert (vendor.health, vendor.kind) == ("not asked", "litellm")


def test_each_tells_its_version_in_its_way(url: str):
    kinds = ("vllm", "sglang", "llamacpp", "engine")
    settings = Settings(backends={k: BackendSettings(kind=k, url=f"{url}/v1") for k in kinds})
    told = {state.kind: state.version for state in engine_states(settings)}
    assert told == {"vllm": "0.31.0", "sglang": "0.5.23", "llamacpp": "b6000-abc", "engine": None}


def test_an_address_tells_no_secret():
    assert address("https://user:pass@host.test:8443/v1?key=secret") == "https://host.test:8443"
    assert address(None) == ""
