"""llama.cpp as a peer: ``llama-server`` on loopback, measured by its own ``timings``.

A fresh server for each mode and workload, so that an n-gram store knows no earlier answers. Where
the answer is prescribed ``llama-replay`` (scripts/peer_replay.cpp) runs in its place: the same
drafts and passes without a server, one sequence at a time.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from . import processes
from .stats import looping
from .workloads import REPLAY, Case, Run

# Its modes that need no draft model (--spec-type of llama-server in llama-cpp-python 0.3.36).
VARIANTS = ("ngram-simple", "ngram-mod", "ngram-cache")


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """server: the built binary, llama-replay beside it; weights: the GGUF of every engine. draft:
    of the modes that need one."""

    server: Path
    weights: Path
    threads: int
    name: str = "llamacpp"
    draft: Path | None = None

    def able(self, workload: str, concurrency: int) -> bool:
        return workload != REPLAY or (concurrency == 1 and self._replay.exists())

    @property
    def _replay(self) -> Path:
        return self.server.with_name("llama-replay")

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else VARIANTS

    def options(self, variant: str, context_tokens: int) -> list[str]:
        speculate = [] if variant == "plain" else ["--spec-type", variant]
        if self.draft is not None and variant != "plain":
            speculate += ["--spec-draft-model", str(self.draft)]
        return [
            *("--model", str(self.weights), "--ctx-size", str(context_tokens)),
            *("--threads", str(self.threads), "--threads-batch", str(self.threads), *speculate),
        ]

    def command(
        self, variant: str, port: int, concurrency: int, context_tokens: int = 8192
    ) -> list[str]:
        """context_tokens: of one slot."""
        return [
            *(str(self.server), *self.options(variant, context_tokens * concurrency)),
            *("--host", "127.0.0.1", "--port", str(port), "--parallel", str(concurrency)),
        ]

    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]:
        """Measure the cases. Raises ``ProcessFailed`` when the server does not come up."""
        window = context_tokens(cases)
        if cases[0].script:
            yield from self._replays(cases, self.options(variant, window))
            return
        port = processes.free_port()
        url = f"http://127.0.0.1:{port}"
        with (
            TemporaryDirectory(prefix="agentspec-bench-") as folder,
            processes.started(self.command(variant, port, concurrency, window), folder) as server,
            processes.wait_http(f"{url}/health", server),
            ThreadPoolExecutor(concurrency) as pool,
        ):
            yield from pool.map(lambda case: _run(url, case), cases)

    def _replays(self, cases: Seq[Case], options: Seq[str]) -> Iterator[Run]:
        with processes.talk([str(self._replay), *options]) as say:
            for number, case in enumerate((cases[0], *cases)):
                ids = (len(case.tokens), len(case.script), *case.tokens, *case.script)
                started_s = time.perf_counter()
                line = say(" ".join(map(str, ids)))
                if number > 0:  # the first time warms up
                    yield read_replay(case, line, started_s)


def context_tokens(cases: Seq[Case]) -> int:
    """A window for each of them and its answer, in whole 256 tokens."""
    most = max(len(case.tokens) + max(case.max_tokens, len(case.script)) for case in cases)
    return -(-(most + 16) // 256) * 256


def read_replay(case: Case, line: str, started_s: float) -> Run:
    """What ``llama-replay`` says of one answer: prefill_us decode_us steps tokens."""
    prefill_us, decode_us, steps, count = map(int, line.split())
    return Run(
        case=case.id,
        workload=case.workload,
        prompt_tokens=len(case.tokens),
        out_tokens=count,
        tok_s=count / decode_us * 1e6,
        prefill_tok_s=len(case.tokens) / prefill_us * 1e6,
        accepted_length=count / steps,
        started_s=started_s,
        ended_s=started_s + (prefill_us + decode_us) / 1e6,
    )


def _run(url: str, case: Case) -> Run:
    ask = {
        "prompt": list(case.tokens),
        "n_predict": case.max_tokens,
        "temperature": 0.0,
        "cache_prompt": False,
        "return_tokens": True,
    }
    request = urllib.request.Request(
        f"{url}/completion", json.dumps(ask).encode(), {"content-type": "application/json"}
    )
    started_s = time.perf_counter()
    with urllib.request.urlopen(request, timeout=1800) as answer:
        run = _read(case, json.load(answer))
    run.started_s, run.ended_s = started_s, time.perf_counter()
    return run


def _read(case: Case, answer: dict[str, Any]) -> Run:
    timings = answer["timings"]
    count = timings["predicted_n"]
    steps = count - timings.get("draft_n_accepted", 0)
    return Run(
        case=case.id,
        workload=case.workload,
        prompt_tokens=len(case.tokens),
        out_tokens=count,
        tok_s=timings["predicted_per_second"] if count > 1 else None,
        prefill_tok_s=timings["prompt_per_second"],
        accepted_length=count / steps if steps else 1.0,
        looped=looping(answer["tokens"]),
        text=answer["content"],
    )
