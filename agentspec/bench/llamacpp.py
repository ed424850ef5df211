"""llama.cpp as a peer: ``llama-server`` on loopback, measured by its own ``timings``.

A fresh server for each mode and workload, so that an n-gram store knows no earlier answers.
"""

from __future__ import annotations

import json
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
from .workloads import Case, Run

# Its modes that need no draft model (--spec-type of llama-server in llama-cpp-python 0.3.36).
VARIANTS = ("ngram-simple", "ngram-mod", "ngram-cache")


@dataclass(frozen=True, slots=True)
class LlamaCpp:
    """server: the built binary; weights: the GGUF that every engine loads."""

    server: Path
    weights: Path
    threads: int
    context_tokens: int = 8192
    name: str = "llamacpp"

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else VARIANTS

    def command(self, variant: str, port: int, concurrency: int) -> list[str]:
        speculate = [] if variant == "plain" else ["--spec-type", variant]
        return [
            *(str(self.server), "--model", str(self.weights), "--port", str(port)),
            *("--ctx-size", str(self.context_tokens * concurrency), "--parallel", str(concurrency)),
            *("--threads", str(self.threads), "--threads-batch", str(self.threads)),
            *("--host", "127.0.0.1", *speculate),
        ]

    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]:
        """Measure the cases. Raises ``ProcessFailed`` when the server does not come up."""
        port = processes.free_port()
        url = f"http://127.0.0.1:{port}"
        with (
            TemporaryDirectory(prefix="agentspec-bench-") as folder,
            processes.started(self.command(variant, port, concurrency), folder) as server,
            processes.wait_http(f"{url}/health", server),
            ThreadPoolExecutor(concurrency) as pool,
        ):
            yield from pool.map(lambda case: _run(url, case), cases)


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
    with urllib.request.urlopen(request, timeout=600) as answer:
        return _read(case, json.load(answer))


def _read(case: Case, answer: dict[str, Any]) -> Run:
    timings = answer["timings"]
    count = timings["predicted_n"]
    steps = count - timings.get("draft_n_accepted", 0)
    return Run(
        case=case.id,
        workload=case.workload,
        out_tokens=count,
        tok_s=timings["predicted_per_second"] if count > 1 else None,
        prefill_tok_s=timings["prompt_per_second"],
        accepted_length=count / steps if steps else 1.0,
        looped=looping(answer["tokens"]),
        text=answer["content"],
    )
