"""transformers as a peer: ``transformers_worker.py`` in the peers' own environment, over pipes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

from .processes import ProcessFailed
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

    def variants(self, mode: str) -> tuple[str, ...]:
        return ("plain",) if mode == "plain" else (f"prompt-lookup-{LOOKUP_TOKENS}",)

    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]:
        """Measure the cases. Raises ``ProcessFailed`` when the worker ends early."""
        assert concurrency == 1
        command = [str(self.python), str(WORKER), str(self.weights), str(self.threads)]
        with (
            TemporaryFile("w+") as log,
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            ) as worker,
        ):
            assert worker.stdin and worker.stdout
            try:
                for case in cases:
                    lookup = 0 if variant == "plain" else LOOKUP_TOKENS
                    ask = {"tokens": case.tokens, "max_tokens": case.max_tokens, "lookup": lookup}
                    yield _read(case, _exchange(worker.stdin, worker.stdout, ask, log))
            finally:
                worker.kill()


def _exchange(to: IO[str], back: IO[str], ask: dict[str, Any], log: IO[str]) -> dict[str, Any]:
    """One line there, one line back. Raises ``ProcessFailed`` with the worker's words."""
    try:
        to.write(json.dumps(ask) + "\n")
        to.flush()
        line = back.readline()
    except BrokenPipeError:
        line = ""
    if not line:
        log.seek(0)
        raise ProcessFailed(f"{WORKER.name} ended early: {log.read()[-500:].strip()}")
    return json.loads(line)


def _read(case: Case, answer: dict[str, Any]) -> Run:
    times, tokens = answer["times_s"], answer["tokens"]
    count = len(tokens)
    decode_s = times[-1] - times[0]
    return Run(
        case=case.id,
        workload=case.workload,
        out_tokens=count,
        tok_s=(count - answer["first"]) / decode_s if decode_s > 0 else None,
        prefill_tok_s=len(case.tokens) / times[0],
        accepted_length=(count - answer["first"]) / (len(times) - 1) if len(times) > 1 else 1.0,
        looped=looping(tokens),
        text=answer["text"],
    )
