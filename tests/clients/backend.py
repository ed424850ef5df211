"""A stand-in for a model server: a real HTTP server on loopback that answers from ``script``.

It holds what it was asked in memory only. One ``Fault`` may be set: it then misbehaves at the given
request of an agent's loop.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from os.path import commonprefix
from pathlib import Path
from typing import Any, Literal

from . import script

Kind = Literal[
    "503", "429", "quota", "abort", "cut-text", "cut-call", "torn-call", "length-call", "no-finish",
    "error-event", "stall",
]  # fmt: skip
REFUSALS: dict[str, tuple[int, dict[str, Any]]] = {
    "503": (503, {"message": "Overloaded.", "type": "server_error", "code": "overloaded"}),
    "429": (429, {"message": "Slow down.", "type": "rate_limit_error", "code": "rate_limit"}),
    "quota": (
        429,
        {
            "message": "You exceeded your current quota.",
            "type": "insufficient_quota",
            "code": "insufficient_quota",
        },
    ),
}
STALL_S = 30.0


@dataclass(frozen=True, slots=True)
class Fault:
    """kind: at request ``at`` of the loop (1 is the first) and the ``times - 1`` after it."""

    kind: Kind
    at: int = 1
    times: int = 1


@dataclass
class Backend:
    """The stand-in and what it was asked since ``begin``."""

    url: str = ""
    work: Path = Path()
    text_edits: bool = False
    fault: Fault | None = None
    requests: list[dict[str, Any]] = field(default_factory=list)
    arrived_s: list[float] = field(default_factory=list)
    failure: str = ""
    release: threading.Event = field(default_factory=threading.Event)
    asked: threading.Event = field(default_factory=threading.Event)
    _loop: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, work: Path, *, text_edits: bool = False, fault: Fault | None = None) -> None:
        self.work, self.text_edits, self.fault = work, text_edits, fault
        self.requests, self.arrived_s, self.failure, self._loop = [], [], "", 0
        self.release, self.asked = threading.Event(), threading.Event()

    def take(self, request: dict[str, Any]) -> tuple[int, Kind | None]:
        """Note a request; returns (tokens of it that an earlier one began with, fault or None)."""
        with self._lock:
            text = _spelled(request)
            shared = max((len(commonprefix([text, _spelled(r)])) for r in self.requests), default=0)
            self.requests.append(request)
            self.arrived_s.append(time.monotonic())
            self.asked.set()
            if not (request.get("tools") or self.text_edits):
                return shared // 4, None
            self._loop += 1
            fault = self.fault
            hit = fault is not None and fault.at <= self._loop < fault.at + fault.times
            return shared // 4, fault.kind if fault is not None and hit else None


def _spelled(request: dict[str, Any]) -> str:
    """What a chat template would see, tools first."""
    return json.dumps([request.get("tools"), request["messages"]], ensure_ascii=False)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    backend: Backend

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        cards = [{"id": "scripted", "object": "model", "max_model_len": 65536}]
        self._json(200, {"object": "list", "data": cards})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        cached, fault = self.backend.take(request)
        if fault in REFUSALS:
            status, error = REFUSALS[fault]
            return self._json(status, {"error": error}, {"Retry-After": "1"})
        if fault == "abort":
            return self._abort()
        try:
            answer = script.answer(request, self.backend.work, text_edits=self.backend.text_edits)
        except Exception as error:
            self.backend.failure = f"{type(error).__name__}: {error}"
            return self._json(500, {"error": {"message": f"the script: {error}"}})
        usage = _usage(request, answer, cached)
        if request.get("stream"):
            self._stream(request, answer, usage, fault)
        else:
            self._whole(request, answer, usage, fault)

    def _whole(
        self, request: dict[str, Any], answer: script.Answer, usage: dict[str, Any], fault: Any
    ) -> None:
        calls, finish = list(answer.calls), "tool_calls" if answer.calls else "stop"
        if fault in ("cut-text", "cut-call", "no-finish", "error-event"):
            return self._abort()
        if fault == "stall":
            self.backend.release.wait(STALL_S)
        if fault in ("torn-call", "length-call") and request.get("tools"):
            calls = [script.torn_call(request, self.backend.work)]
            finish = "length" if fault == "length-call" else "tool_calls"
        message: dict[str, Any] = {"role": "assistant", "content": answer.text}
        if calls:
            message["tool_calls"] = [_call(i, c) for i, c in enumerate(calls)]
        choice = {"index": 0, "message": message, "finish_reason": finish}
        self._json(200, _head("chat.completion") | {"choices": [choice], "usage": usage})

    def _stream(
        self, request: dict[str, Any], answer: script.Answer, usage: dict[str, Any], fault: Any
    ) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            if self._pieces(request, answer, usage, fault):
                self.wfile.write(b"0\r\n\r\n")
            else:
                self._abort()
        except OSError:
            self.close_connection = True

    def _pieces(
        self, request: dict[str, Any], answer: script.Answer, usage: dict[str, Any], fault: Any
    ) -> bool:
        """Write the events; False: break the connection off now."""
        words = answer.text.split(" ")
        for i, word in enumerate(words):
            self._delta({"content": word if i == 0 else f" {word}"})
            if i == 0 and fault == "stall":
                self.backend.release.wait(STALL_S)
            if fault == "cut-text":
                return False
        if fault == "error-event":
            self._event({"error": {"message": "out of memory", "type": "server_error"}})
            return True
        if fault == "no-finish":
            return True
        if fault in ("cut-call", "torn-call", "length-call") and request.get("tools"):
            torn = script.torn_call(request, self.backend.work)
            self._call(0, torn)
            if fault == "cut-call":
                return False
            self._delta({}, "length" if fault == "length-call" else "tool_calls")
        else:
            for i, call in enumerate(answer.calls):
                self._call(i, call)
            self._delta({}, "tool_calls" if answer.calls else "stop")
        self._event(_head("chat.completion.chunk") | {"choices": [], "usage": usage})
        self._write("data: [DONE]\n\n")
        return True

    def _call(self, index: int, call: script.Call) -> None:
        whole = _call(index, call)
        first = whole | {"index": index, "function": whole["function"] | {"arguments": ""}}
        self._delta({"tool_calls": [first]})
        for start in range(0, len(call.arguments), 24):
            piece = {"arguments": call.arguments[start : start + 24]}
            self._delta({"tool_calls": [{"index": index, "function": piece}]})

    def _delta(self, delta: dict[str, Any], finish: str | None = None) -> None:
        choice = {"index": 0, "delta": delta, "finish_reason": finish}
        self._event(_head("chat.completion.chunk") | {"choices": [choice]})

    def _event(self, body: dict[str, Any]) -> None:
        self._write(f"data: {json.dumps(body)}\n\n")

    def _write(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.wfile.flush()

    def _json(self, status: int, body: dict[str, Any], headers: dict[str, str] | None = None):
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json"} | (headers or {})).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _abort(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)


def _head(kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-script", "object": kind, "created": 1, "model": "scripted"}


def _call(index: int, call: script.Call) -> dict[str, Any]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": f"call_{index}_{time.monotonic_ns()}", "type": "function", "function": function}


def _usage(request: dict[str, Any], answer: script.Answer, cached: int) -> dict[str, Any]:
    prompt, written = len(_spelled(request)) // 4, len(answer.text) // 4 + 1
    return {
        "prompt_tokens": prompt,
        "completion_tokens": written,
        "total_tokens": prompt + written,
        "prompt_tokens_details": {"cached_tokens": min(cached, prompt)},
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away: what faults are about."""


@contextmanager
def running() -> Iterator[Backend]:
    """The stand-in on a free loopback port until the block ends."""
    backend = Backend()
    handler = type("Handler", (_Handler,), {"backend": backend})
    with _Server(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        backend.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield backend
        finally:
            backend.release.set()
            server.shutdown()
            thread.join()
