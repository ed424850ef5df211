"""The same trained drafts in llama.cpp's server, beside its plain decoding: another's word.

Greedy, without a grammar, the same prompts as token ids, one sequence at a time.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence as Seq
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agentspec.bench import report
from agentspec.bench.llamacpp import LlamaCpp
from agentspec.bench.workloads import BenchError, Case, Run
from agentspec.engine.draft.errors import UnsupportedDraft

from .llama_export import export

_PLAIN = "plain"


def check(folder: Path) -> Path:
    """The server's binary. Raises ``BenchError`` where it was not built."""
    server = folder / "bin" / "llama-server"
    if not server.exists():
        raise BenchError(f"{server} is missing: run scripts/peers.sh")
    return server


def measure(
    server: Path, weights: Path, threads: int, cases: Seq[Case], drafts: dict[str, str]
) -> dict[str, Any]:
    """``peers``: rows; ``not_exported``: why a draft has no place there, by name."""
    plain = LlamaCpp(server, weights, threads)
    rows, refused = [], {}
    with TemporaryDirectory(prefix="agentspec-compare-") as scratch:
        exported = {}
        for name, path in drafts.items():
            out = Path(scratch) / f"{name}.gguf"
            try:
                exported[name] = (export(Path(path), weights, out), out)
            except UnsupportedDraft as error:
                refused[name] = str(error)
        for workload in dict.fromkeys(case.workload for case in cases):
            of = [case for case in cases if case.workload == workload]
            base = list(plain.runs(of, _PLAIN, 1)) if exported else []
            for name, (kind, out) in exported.items():
                runs = list(replace(plain, draft=out).runs(of, kind, 1))
                rows.append(row(name, kind, workload, runs, base))
                report.progress(f"llama.cpp {kind} {workload}: {rows[-1]['speedup']} times plain")
    return {"peers": rows, "not_exported": refused}


def row(name: str, kind: str, workload: str, runs: Seq[Run], plain: Seq[Run]) -> dict[str, Any]:
    """Medians over the prompts whose answers do not loop. same_text: as its own plain decoding
    (its passes of several rows are not promised to be exact)."""
    pairs = [
        (run, base)
        for run, base in zip(runs, plain, strict=True)
        if not run.looped and not base.looped and run.tok_s and base.tok_s
    ]

    def median(values: Seq[float]) -> float | None:
        return round(statistics.median(values), 4) if values else None

    return {
        "engine": "llamacpp",
        "method": name,
        "mode": kind,
        "workload": workload,
        "accepted_length": median([run.accepted_length for run, _ in pairs]),
        "tok_s": median([run.tok_s or 0.0 for run, _ in pairs]),
        "plain_tok_s": median([base.tok_s or 0.0 for _, base in pairs]),
        "speedup": median([(run.tok_s or 0.0) / (base.tok_s or 1.0) for run, base in pairs]),
        "same_text": sum(run.text == base.text for run, base in pairs),
        "n": len(pairs),
        "looped": len(runs) - len(pairs),
    }
