"""Endpoints that are none, want a key, or answer with something else: each a sentence, no trace."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from agentspec import cli

CARDS = b'{"data": [{"id": "m", "context_length": 8192}]}'


def http(status: int, body: bytes, kind: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@contextmanager
def answering(reply: Callable[[bytes], bytes]) -> Iterator[str]:
    """A server on loopback that answers each connection's first bytes with ``reply`` of them."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    if asked := connection.recv(65536):
                        connection.sendall(reply(asked))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "LLM_USER_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["connect", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("agentspec: ") and "checked" not in captured.out
    return captured.err


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        (http(200, b"<html>a router</html>", "text/html"), "is no list of models"),
        (http(200, b"[]"), "is no list of models"),
        (http(200, b'{"models": []}'), "is no list of models"),
        (http(200, b'{"data": [{"name": "m"}]}'), "is no list of models"),
        (http(200, b'{"data": [{"id": "m", "context_length": "8k"}]}'), "is no list of models"),
        (http(200, b'{"data": []}'), "offers no model"),
        (http(200, CARDS)[:-9], "is no list of models"),
        (http(404, b"nothing here", "text/plain"), "404 nothing here"),
        (http(500, b""), "500"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "does not answer (SSH-2.0"),
        (b"", "does not answer"),
    ],
)
def test_what_is_no_such_endpoint(capsys, home: Path, reply: bytes, told: str):
    with answering(lambda asked: reply) as url:
        assert told in said(capsys, "opencode", "--url", url, "--write")
    assert list(home.rglob("*")) == []


@pytest.mark.parametrize("client", ["opencode", "codex", "claude-code"])
@pytest.mark.parametrize(
    "stream", [b"", b"data: [1]\n\n", b"data: {\n\n", b'data: {"error": "no"}\n\n', b"hello"]
)
def test_a_stream_that_is_none(capsys, client: str, stream: bytes):
    def reply(asked: bytes) -> bytes:
        if asked.startswith(b"GET "):
            return http(200, CARDS)
        return http(200, stream, "text/event-stream")

    with answering(reply) as url:
        said(capsys, client, "--url", url)


def test_an_event_in_another_form_is_told(capsys):
    event = b'data: {"type": "response.output_item.done", "item": {"type": "function_call"}}\n\n'

    def reply(asked: bytes) -> bytes:
        return http(200, CARDS if asked.startswith(b"GET ") else event)

    with answering(reply) as url:
        assert "is not as it should be" in said(capsys, "codex", "--url", url)


def test_a_key_that_is_missing_or_wrong(capsys, monkeypatch: pytest.MonkeyPatch):
    def reply(asked: bytes) -> bytes:
        wrong = b"authorization: bearer wrong" in asked.lower()
        return http(401, b'{"error": {"message": "%s"}}' % (b"Wrong." if wrong else b"None."))

    monkeypatch.setenv("MY_KEY", "wrong")
    with answering(reply) as url:
        without = said(capsys, "codex", "--url", url, "--write")
        assert "401 None." in without and "--key-env" in without
        given = said(capsys, "codex", "--url", url, "--key-env", "MY_KEY", "--write")
        assert "401 Wrong." in given and "--key-env" not in given


@pytest.mark.parametrize("url", ["http://127.0.0.1:80 80", "http://", "ftp://127.0.0.1:1"])
def test_an_address_that_is_none(capsys, url: str):
    said(capsys, "codex", "--url", url)
