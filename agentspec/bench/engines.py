"""``bench engine``: decode speed of this engine beside its peers, same prompts, weights, threads.

Every engine gets the same token ids, greedy. tok_s is decode tokens a second of one sequence, in
process: our own clock around ``Engine.step``, llama-server's ``timings``, a streamer in
transformers. total_tok_s is the output of all sequences over the wall time of all, prompts
included. Answers that run into a loop are kept in ``runs`` and counted in ``looped``, but enter no
median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from . import report
from .llamacpp import LlamaCpp
from .ours import Ours
from .processes import ProcessFailed
from .stats import spread
from .transformers_peer import Transformers
from .workloads import BenchError, Case, Run, load

COLUMNS = [
    *("engine", "mode", "workload", "context", "concurrency", "tok_s", "total_tok_s"),
    *("prefill_tok_s", "accepted_length", "n", "looped", "variant"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure; fields as the command line names them."""

    engines: list[str]
    modes: list[str]
    workloads: list[str]
    contexts: list[int]
    concurrency: list[int]
    count: int
    max_tokens: int
    threads: int
    weights: str | None
    data: Path | None
    peers: Path
    config: str | None
    seed: int

    @classmethod
    def of(cls, args: argparse.Namespace) -> Plan:
        return cls(
            engines=args.engines,
            modes=args.modes,
            workloads=args.workloads,
            contexts=args.contexts,
            concurrency=args.concurrency,
            count=args.n,
            max_tokens=args.max_tokens,
            threads=args.threads or len(os.sched_getaffinity(0)),
            weights=args.weights,
            data=Path(args.data) if args.data else None,
            peers=Path(args.peers),
            config=args.config,
            seed=args.seed,
        )

    @property
    def most(self) -> int:
        """Prompts of one row, at most: enough to keep every level busy."""
        return max(self.count, *self.concurrency)

    @property
    def kv_tokens(self) -> int:
        """What all sequences of a row may hold together."""
        return max(self.concurrency) * (max(self.contexts) + self.max_tokens + 64)


class Engine(Protocol):
    """One engine of the comparison. A mode may have several variants; each is measured."""

    @property
    def name(self) -> str: ...
    def able(self, workload: str, concurrency: int) -> bool: ...
    def variants(self, mode: str) -> tuple[str, ...]: ...
    def runs(self, cases: Seq[Case], variant: str, concurrency: int) -> Iterator[Run]: ...


def peers(plan: Plan, weights: Path) -> list[Engine]:
    """The peers that were asked for. Raises ``BenchError`` where one was not built."""
    places = {
        "llamacpp": plan.peers / "bin" / "llama-server",
        "transformers": plan.peers / "venv" / "bin" / "python",
    }
    found: list[Engine] = []
    for name in plan.engines:
        if name == "agentspec":
            continue
        if name not in places:
            raise BenchError(f"no engine '{name}'; there are agentspec, {', '.join(places)}")
        if not places[name].exists():
            raise BenchError(f"{places[name]} is missing: run scripts/peers.sh")
        build = LlamaCpp if name == "llamacpp" else Transformers
        found.append(build(places[name], weights, plan.threads))
    return found


def row(
    engine: str,
    mode: str,
    variant: str,
    workload: str,
    runs: Seq[Run],
    context: int = 0,
    concurrency: int = 1,
) -> dict[str, Any]:
    """One result. Medians are over the runs that did not loop; n counts those."""
    good = [run for run in runs if not run.looped and run.tok_s is not None]

    def median(values: Seq[float]) -> float | None:
        return statistics.median(values) if values else None

    rates = [run.tok_s for run in good if run.tok_s is not None]
    return {
        "engine": engine,
        "mode": mode,
        "workload": workload,
        "context": context,
        "concurrency": concurrency,
        "tok_s": median(rates),
        "total_tok_s": _total(runs),
        "prefill_tok_s": median([run.prefill_tok_s for run in runs]),
        "accepted_length": median([run.accepted_length for run in good]),
        "n": len(good),
        "looped": sum(run.looped for run in runs),
        "variant": variant,
        "prompt_tokens": median([run.prompt_tokens for run in runs]),
        "spread": spread(rates),
    }


def _total(runs: Seq[Run]) -> float | None:
    """Output tokens of all runs over the time from the first start to the last end."""
    wall_s = max(run.ended_s for run in runs) - min(run.started_s for run in runs) if runs else 0
    return sum(run.out_tokens for run in runs) / wall_s if wall_s > 0 else None


def best(rows: Seq[dict[str, Any]]) -> dict[str, Any]:
    """The fastest variant of a mode: what a peer is compared by."""
    return max(rows, key=lambda one: one["tok_s"] or 0.0)


def _plots(plan: Plan, engine: Engine) -> Iterator[tuple[str, str, int, int, str]]:
    """What to measure of an engine: mode, workload, context, concurrency, variant."""
    for workload, context, level in product(plan.workloads, plan.contexts, plan.concurrency):
        if not engine.able(workload, level):
            continue
        for mode in plan.modes:
            for variant in engine.variants(mode):
                yield mode, workload, context, level, variant


def _measure(engine: Engine, plan: Plan, cases: Seq[Case]) -> Iterator[dict[str, Any]]:
    """Rows of every variant, each with its runs."""
    for mode, workload, context, level, variant in _plots(plan, engine):
        chosen = [c for c in cases if (c.workload, c.context) == (workload, context)]
        started_s = time.perf_counter()
        runs = list(engine.runs(chosen[: max(plan.count, level)], variant, level))
        one = row(engine.name, mode, variant, workload, runs, context, level)
        rate = "-" if one["tok_s"] is None else f"{one['tok_s']:.1f}"
        at = f"{workload} {context or 'own'} x{level}"
        report.progress(
            f"{engine.name} {variant} {at}: {rate} tok/s, {one['looped']} looped "
            f"({time.perf_counter() - started_s:.0f} s)"
        )
        yield one | {"runs": [asdict(run) for run in runs]}


def _all(engines: Seq[Engine], plan: Plan, cases: Seq[Case]) -> tuple[list[Any], dict[str, str]]:
    """Rows of every engine, and of each that broke down why: others' rows stay what they are."""
    rows: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    for engine in engines:
        try:
            for one in _measure(engine, plan, cases):
                rows.append(one)
        except ProcessFailed as error:
            failed[engine.name] = str(error)
            report.progress(f"{engine.name}: {error}")
    return rows, failed


def _compact(rows: Seq[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each situation: an engine's best variant, without its runs."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in rows:
        key = tuple(one[name] for name in ("engine", "mode", "workload", "context", "concurrency"))
        groups.setdefault(key, []).append({k: v for k, v in one.items() if k != "runs"})
    return [best(group) for group in groups.values()]


def _peer_versions(plan: Plan) -> dict[str, str]:
    """What scripts/peers.sh wrote down, one ``name version`` a line."""
    path = plan.peers / "versions.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines if " " in line)


def run(plan: Plan) -> dict[str, Any]:
    """The whole bench. Engines run one after the other, never at the same time.

    ``failed`` of the document names the peers that broke down: of them rows are missing.
    """
    ours = Ours.start(plan.weights, plan.threads, plan.config, plan.kv_tokens)
    engines: list[Engine] = [*peers(plan, ours.weights)]
    if "agentspec" in plan.engines:
        engines.insert(0, ours)
    prompts = [p for name in plan.workloads for p in load(name, plan.most, plan.data, plan.seed)]
    cases = [ours.case(p, plan.max_tokens, length) for p in prompts for length in plan.contexts]
    rows, failed = _all(engines, plan, cases)
    return report.build(
        _compact(rows),
        versions=_peer_versions(plan),
        variants=rows,
        threads=plan.threads,
        max_tokens=plan.max_tokens,
        weights=ours.weights.name,
        failed=failed,
    )
