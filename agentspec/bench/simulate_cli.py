"""The command line of ``bench simulate``."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from .load_cli import MODES, modes, numbers

MACHINES = ("cpu2", "v4-flash-4xb300", "v4-pro-8xb300", "v4-flash-mi355x")


def _rates(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(",") if word)


def add(kinds: Any) -> None:
    parser = kinds.add_parser("simulate", help="the scheduler on another machine's cost curve")
    parser.add_argument("--machine", choices=MACHINES, default="v4-pro-8xb300")
    parser.add_argument("--modes", type=modes, default=modes(MODES), metavar="NAME,..")
    parser.add_argument("--concurrency", type=numbers, default=(1, 4, 16, 64, 256))
    parser.add_argument(
        "--acceptance",
        type=_rates,
        default=(0.8, 0.75, 0.7, 0.7, 0.65, 0.65, 0.6, 0.6),
        metavar="P,P",
        help="of each place given those before it; not of a published table, where it is fitted",
    )
    parser.add_argument("--tokens", type=int, default=64, help="of each answer")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_simulate)


def run_simulate(args: argparse.Namespace) -> int:
    from . import report, simulate

    document = simulate.run(
        args.machine, args.modes, args.concurrency, args.acceptance, args.tokens
    )
    columns = simulate.COLUMNS if "median_error" in document else simulate.PLAN_COLUMNS
    sys.stdout.write(report.table(document["results"], columns))
    if "median_error" in document:
        sys.stdout.write(f"median error of what was not fitted: {document['median_error']:.1%}\n")
    if args.json:
        report.write(args.json, document)
    return 0
