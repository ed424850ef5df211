"""transformers as a peer: ``transformers_worker.py`` in the peers' own environment, over pipes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import processes
from .stats import looping
from .workloads import Case, Run

WORKER = Path(__file__).with_name("transformers_worker.py")
LOOKUP_TOKENS = 8


@dataclass(frozen=True, slots=True)
class Transformers:
    """python: the interpreter that has transformers. One sequence at a time only."""

    python: Path
    weights: Path
    threads: int
    name: str = "transformers"

    def able(self, workload: str, concurrency: int) -> bool:
        return concurrency == 1

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else (f"prompt-lookup-{LOOKUP_TOKENS}",)

    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]:
        """Measure the cases. Raises ``ProcessFailed`` when the worker ends early."""
        assert concurrency == 1
        # -I: our PYTHONPATH isn't the peer's (transformers would take our kernels/ for its own).
        command = [str(self.python), "-I", str(WORKER), str(self.weights), str(self.threads)]
        with processes.talk(command) as say:
            for case in cases:
                ask = {
                    "tokens": case.tokens,
                    "max_tokens": len(case.script) or case.max_tokens,
                    "lookup": 0 if variant == "plain" else LOOKUP_TOKENS,
                    "script": case.script,
                }
                started_s = time.perf_counter()
                run = _read(case, json.loads(say(json.dumps(ask))))
                run.started_s, run.ended_s = started_s, time.perf_counter()
                yield run


def _read(case: Case, answer: dict[str, Any]) -> Run:
    times, tokens = answer["times_s"], answer["tokens"]
    count = len(tokens)
    decode_s = times[-1] - times[0]
    return Run(
        case=case.id,
        workload=case.workload,
        prompt_tokens=len(case.tokens),
        out_tokens=count,
        tok_s=(count - answer["first"]) / decode_s if decode_s > 0 else None,
        prefill_tok_s=len(case.tokens) / times[0],
        accepted_length=(count - answer["first"]) / (len(times) - 1) if len(times) > 1 else 1.0,
        looped=not case.script and looping(tokens),
        text=answer["text"],
    )
