"""``agentspec bench prompts``: training or evaluation prompts, written to a file or a folder."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from agentspec.bench.compare import overlap

from .build import WORKLOADS, build, write
from .sides import SIDES


def add(kinds: Any) -> None:
    parser = kinds.add_parser("prompts", help="prompts to train drafts on, or to judge them by")
    parser.add_argument("--side", choices=SIDES, required=True)
    parser.add_argument("--to", type=Path, required=True, help="a .jsonl file, or a folder")
    parser.add_argument("--tasks", type=Path, help="function-calling tasks in BFCL's form")
    parser.add_argument("--n", default="400,400,400,400", help=f"of {', '.join(WORKLOADS)}")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--without", type=Path, nargs="+", default=[], help="leave out what shares 12 words with it"
    )
    parser.add_argument(
        "--runs", type=Path, metavar="FILE.runs", help="also write the hashes of their 12-word runs"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace) -> int:
    numbers = [int(word) for word in args.n.split(",")]
    if len(numbers) != len(WORKLOADS):
        raise SystemExit(f"--n takes {len(WORKLOADS)} numbers: {', '.join(WORKLOADS)}")
    counts: dict[str, int] = dict(zip(WORKLOADS, numbers, strict=True))
    made = build(args.side, counts, args.tasks, args.seed)
    trained = overlap.trained_runs(args.without)
    for workload, prompts in made.items():
        shared = set(overlap.overlapping([(body["id"], body) for body in prompts], trained))
        made[workload] = [body for body in prompts if body["id"] not in shared]
    if args.runs is not None:
        bodies = [body for prompts in made.values() for body in prompts]
        overlap.write_runs(args.runs, overlap.runs_of(bodies))
    sys.stdout.write(f"{write(made, args.to)} prompts in {args.to}\n")
    return 0
