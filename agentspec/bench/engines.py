"""``bench engine``: decode speed of this engine beside its peers, same prompts, weights, threads.

Every engine gets the same token ids, greedy. tok_s is decode tokens a second in process: our own
clock around ``Engine.step``, llama-server's ``timings``, a streamer in transformers. Answers that
run into a loop are kept in ``runs`` and counted in ``looped``, but enter no median.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Iterator
from collections.abc import Sequence as Seq
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from . import report
from .llamacpp import LlamaCpp
from .ours import Ours
from .stats import spread
from .transformers_peer import Transformers
from .workloads import BenchError, Case, Run, load

COLUMNS = [
    *("engine", "mode", "workload", "tok_s", "prefill_tok_s", "accepted_length", "n", "looped"),
    *("variant", "concurrency"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to measure; fields as the command line names them."""

    engines: list[str]
    modes: list[str]
    workloads: list[str]
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


class Engine(Protocol):
    """One engine of the comparison. A mode may have several variants; each is measured."""

    @property
    def name(self) -> str: ...
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


def row(engine: str, mode: str, variant: str, workload: str, runs: Seq[Run]) -> dict[str, Any]:
    """One result. Medians are over the runs that did not loop; n counts those."""
    good = [run for run in runs if not run.looped and run.tok_s is not None]

    def median(values: Seq[float]) -> float | None:
        return statistics.median(values) if values else None

    rates = [run.tok_s for run in good if run.tok_s is not None]
    return {
        "engine": engine,
        "mode": mode,
        "workload": workload,
        "tok_s": median(rates),
        "prefill_tok_s": median([run.prefill_tok_s for run in runs]),
        "accepted_length": median([run.accepted_length for run in good]),
        "n": len(good),
        "looped": sum(run.looped for run in runs),
        "variant": variant,
        "spread": spread(rates),
    }


def best(rows: Seq[dict[str, Any]]) -> dict[str, Any]:
    """The fastest variant of a mode: what a peer is compared by."""
    return max(rows, key=lambda one: one["tok_s"] or 0.0)


def _measure(engine: Engine, plan: Plan, cases: Seq[Case]) -> Iterator[dict[str, Any]]:
    """Rows of every variant, each with its runs."""
    for mode in plan.modes:
        for workload in plan.workloads:
            chosen = [case for case in cases if case.workload == workload]
            for level in plan.concurrency:
                if level > 1 and engine.name == "transformers":
                    continue
                for variant in engine.variants(mode):
                    started_s = time.perf_counter()
                    runs = list(engine.runs(chosen, variant, level))
                    one = row(engine.name, mode, variant, workload, runs)
                    rate = "-" if one["tok_s"] is None else f"{one['tok_s']:.1f}"
                    report.progress(
                        f"{engine.name} {variant} {workload} x{level}: {rate} tok/s, "
                        f"{one['looped']} looped ({time.perf_counter() - started_s:.0f} s)"
                    )
                    yield one | {"concurrency": level, "runs": [asdict(run) for run in runs]}


def _compact(rows: Seq[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each engine, mode, workload and concurrency: its best variant, without runs."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in rows:
        key = tuple(one[name] for name in ("engine", "mode", "workload", "concurrency"))
        groups.setdefault(key, []).append({k: v for k, v in one.items() if k != "runs"})
    return [best(group) for group in groups.values()]


def _peer_versions(plan: Plan) -> dict[str, str]:
    """What scripts/peers.sh wrote down, one ``name version`` a line."""
    path = plan.peers / "versions.txt"
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split(" ", 1) for line in lines if " " in line)


def run(plan: Plan) -> dict[str, Any]:
    """The whole bench. Engines run one after the other, never at the same time."""
    ours = Ours.start(plan.weights, plan.threads, plan.config)
    engines: list[Engine] = [*peers(plan, ours.weights)]
    if "agentspec" in plan.engines:
        engines.insert(0, ours)
    prompts = [p for name in plan.workloads for p in load(name, plan.count, plan.data, plan.seed)]
    cases = [ours.case(prompt, plan.max_tokens) for prompt in prompts]
    rows = [row for engine in engines for row in _measure(engine, plan, cases)]
    return report.build(
        _compact(rows),
        versions=_peer_versions(plan),
        variants=rows,
        threads=plan.threads,
        max_tokens=plan.max_tokens,
        weights=ours.weights.name,
    )
