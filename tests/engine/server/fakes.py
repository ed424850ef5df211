"""A tokenizer of bytes and an engine that says what a script tells it, step by step."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from itertools import accumulate
from typing import Any

from agentspec.engine.loop import EngineLoop
from agentspec.engine.metrics import EngineMetrics
from agentspec.engine.request import GenerationRequest, Output, TokenInfo
from agentspec.engine.service import EngineService
from agentspec.engine.stats import EngineStats
from agentspec.engine.turn import Planner
from agentspec.toolcall.choice import OutputSpec
from agentspec.toolcall.format import load_format
from agentspec.wire.extension import BusyTime, SourceCount, SpecReport

MODEL = "toy"
CONTEXT_TOKENS = 4096
FORMAT = load_format("smollm2")

Script = Iterable[Output | threading.Event | Exception]
"""Steps of one sequence: outputs (their id is filled in), gates to wait at, failures."""


class ByteTokenizer:
    """Token id = byte; 256 ends a text."""

    vocab_size = 257
    token_bytes = [bytes([i]) for i in range(256)] + [b""]
    eos_ids = frozenset({256})
    special_ids = frozenset({256})

    def encode(self, text: str, special: bool = False) -> list[int]:
        return list(text.encode())

    def render(self, turns: list[dict[str, str]], *, tools: Any = ()) -> list[int]:
        assert not tools, "this template shows none"
        return self.encode("".join(f"<{turn['role']}>{turn['content']}\n" for turn in turns))

    def native(self, fmt: object) -> None:
        return None


class NoCompiler:
    """Remembers specs; the scripted engine asks no constraint anything."""

    def __init__(self) -> None:
        self.specs: list[OutputSpec] = []

    def compile(self, spec: OutputSpec) -> Any:
        self.specs.append(spec)
        return object()


def says(*texts: str, finish: str = "stop", **last: Any) -> list[Output]:
    """One output a text, each text's bytes as its tokens; the last one ends the sequence."""
    outputs = [
        Output(
            id="",
            text=text,
            tokens=len(text.encode()),
            infos=[TokenInfo(token, -0.5, ((token, -0.5), (65, -1.5))) for token in text.encode()],
        )
        for text in texts
    ]
    for output, count in zip(outputs, accumulate(o.tokens for o in outputs), strict=True):
        output.output_tokens = count
    outputs[-1].finish_reason = finish
    outputs[-1].report = report()
    for name, value in last.items():
        setattr(outputs[-1], name, value)
    return outputs


def report() -> SpecReport:
    return SpecReport(
        sources={"suffix": SourceCount(6, 4), "forced": SourceCount(9, 9)},
        steps=3,
        hist=[1, 0, 2],
        busy_us=BusyTime(prefill=10, decode=20, draft=3, grammar=4),
        queue_us=7,
        exact=True,
        redecoded=2,
    )


class ScriptedEngine:
    """``loop.SteppedEngine`` whose sequences follow ``script(request)``."""

    def __init__(self, script: Callable[[GenerationRequest], Script]):
        self._script = script
        self.running: dict[str, deque] = {}
        self.added: list[GenerationRequest] = []
        self.aborted: list[str] = []
        self.refusal: Exception | None = None
        self.steps = 0
        self.abort_seen = threading.Event()

    def add(self, request: GenerationRequest) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.added.append(request)
        self.running[request.id] = deque(self._script(request))

    def abort(self, id: str) -> None:
        if self.running.pop(id, None) is not None:
            self.aborted.append(id)
            self.abort_seen.set()

    def has_work(self) -> bool:
        return bool(self.running)

    def step(self) -> list[Output]:
        self.steps += 1
        outputs = []
        for id in list(self.running):
            item = self.running[id][0]
            if isinstance(item, threading.Event) and not item.wait(0.002):
                continue
            self.running[id].popleft()
            if isinstance(item, threading.Event):
                continue
            if isinstance(item, Exception):
                raise item
            item.id = id
            outputs.append(item)
            if item.finish_reason is not None:
                del self.running[id]
        return outputs

    def stats(self) -> EngineStats:
        return EngineStats(
            running=len(self.running),
            waiting=0,
            pages_used=1,
            pages_cached=2,
            pages_free=3,
            busy_us=BusyTime(prefill=1_500_000, decode=10),
            steps=self.steps,
        )


def planner(compiler: Any = None, sources: tuple[str, ...] = ("suffix", "ngram")) -> Planner:
    return Planner(
        model=MODEL,
        context_tokens=CONTEXT_TOKENS,
        tokenizer=ByteTokenizer(),
        tool_format=FORMAT,
        compiler=compiler or NoCompiler(),
        sources=sources,
    )


def service(engine: Any, **options: Any) -> EngineService:
    metrics = EngineMetrics()
    loop = EngineLoop(engine, on_end=metrics.sequence_ended)
    return EngineService(loop, planner(), metrics, **options)
