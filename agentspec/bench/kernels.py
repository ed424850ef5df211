"""``bench kernels``: milliseconds of forward passes on the exact kernels, whole and by part.

Legend: T rows of one pass. Passes read a cache of noise: what K/V holds changes no time.

All rows are measured in turns, round after round, so that a slow second of the machine falls on
all of them; beside the median stands the minimum, which a busy machine changes least.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from agentspec.engine.batch import Span
from agentspec.engine.exact_runner import ExactRunner
from agentspec.engine.model.fetch import resolve
from agentspec.settings import EngineSettings

from . import report

COLUMNS = ["what", "op", "context", "rows", "min_ms", "median_ms", "tok_s", "ratio", "n"]

PREFILL = "prefill"
PASS = "pass"
CHUNK = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """rows: of one pass, all of whose logits are computed up to 16 rows, else the last one's.

    contexts: tokens in the cache before a pass; the length of a prefill's prompt. isa: None: best.
    """

    count: int
    contexts: list[int]
    rows: list[int]
    ops: list[str]
    prefill: bool
    threads: int
    isa: str | None
    weights: str | None


@dataclass(slots=True)
class _Case:
    what: str
    op: str
    context: int
    rows: int
    spans: list[Span]
    ms: list[float]

    def row(self) -> dict[str, Any]:
        shortest = min(self.ms)
        return {
            "what": self.what,
            "op": self.op,
            "context": self.context,
            "rows": self.rows,
            "min_ms": shortest,
            "median_ms": statistics.median(self.ms),
            "max_ms": max(self.ms),
            "tok_s": self.rows / shortest * 1e3 if self.op == "all" else None,
            "n": len(self.ms),
        }


def run(plan: Plan) -> dict[str, Any]:
    """The whole bench. Raises what ``ExactRunner.load`` raises."""
    longest = max(plan.contexts) + max(plan.rows)
    tokens = -(-longest // CHUNK) * CHUNK
    settings = EngineSettings(
        threads=plan.threads, kv_tokens=tokens, context_tokens=tokens, weights=plan.weights
    )
    runner = ExactRunner.load(settings, Path(resolve(settings.weights)), isa=plan.isa)
    cases = list(_cases(plan, runner.num_pages))
    for case in cases:  # buffers grow, K/V is written, pages are mapped
        _pass(runner, case)
    for number in range(plan.count):
        for case in cases:
            case.ms.append(_pass(runner, case))
        report.progress(f"kernels: round {number + 1} of {plan.count}")
    rows = [case.row() for case in cases]
    return report.build(rows + list(_ratios(rows)), kernels=runner.kind, threads=plan.threads)


def _cases(plan: Plan, num_pages: int) -> Iterator[_Case]:
    pages = list(range(num_pages))
    rng = np.random.default_rng(0)
    for context in plan.contexts:
        if plan.prefill:
            ids = rng.integers(1000, 40000, context).tolist()
            starts = range(0, context, CHUNK)
            spans = [Span(ids[at : at + CHUNK], at, pages) for at in starts]
            spans[-1].logit_rows = [len(spans[-1].tokens) - 1]
            yield _Case(PREFILL, "all", context, context, spans, [])
        for rows in plan.rows:
            ids = rng.integers(1000, 40000, rows).tolist()
            wanted = list(range(rows)) if rows <= 16 else [rows - 1]
            for op in plan.ops:
                yield _Case(PASS, op, context, rows, [Span(ids, context, pages, wanted)], [])


def _pass(runner: ExactRunner, case: _Case) -> float:
    """Milliseconds of the case's passes, one after the other."""
    started_ns = time.perf_counter_ns()
    for span in case.spans:
        runner.forward([span], op=case.op)
    return (time.perf_counter_ns() - started_ns) / 1e6


def _ratios(rows: Seq[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What a pass of several rows costs over one of one row, by minima."""
    one = {r["context"]: r for r in rows if (r["what"], r["op"], r["rows"]) == (PASS, "all", 1)}
    for row in rows:
        base = one.get(row["context"])
        if base is None or row["what"] != PASS or row["op"] != "all" or not 1 < row["rows"] <= 16:
            continue
        what = f"verify-{row['rows']} over verify-1"
        ratio = row["min_ms"] / base["min_ms"]
        yield {"what": what, "context": row["context"], "ratio": ratio, "n": row["n"]}
