"""The command line of ``bench load``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

MODES = "off,k1,k3,k5,k8,table,switch60,adaptive"


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def modes(text: str) -> tuple[str, ...]:
    """Names with ranges: "k1..k8" is k1,k2,...,k8."""
    found: list[str] = []
    for word in _words(text):
        first, dots, last = word.partition("..")
        if dots:
            found += [f"k{n}" for n in range(int(first[1:]), int(last[1:]) + 1)]
        else:
            found.append(word)
    return tuple(found)


def numbers(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in _words(text))


def add(kinds: Any) -> None:
    parser = kinds.add_parser("load", help="ways of scheduling speculation, under rising load")
    parser.add_argument("--modes", type=modes, default=modes(MODES), metavar="NAME,..")
    parser.add_argument("--concurrency", type=numbers, default=(1, 2, 4, 8, 16, 32))
    parser.add_argument("--workloads", type=_words, default=("tool", "edit", "code", "chat"))
    parser.add_argument("--n", dest="count", type=int, default=3, help="requests a stream and run")
    parser.add_argument("--rounds", type=int, default=5, help="counted runs of each mode")
    parser.add_argument("--max-tokens", type=int, default=96, help="output limit of one answer")
    parser.add_argument("--context", type=int, default=0, help="bring prompts to so many tokens")
    parser.add_argument("--ttft-ms", type=float, default=2000.0, help="goodput's limit")
    parser.add_argument("--tpot-ms", type=float, default=50.0, help="goodput's limit")
    parser.add_argument("--trace", metavar="CSV", help="arrivals instead of a closed loop")
    parser.add_argument("--divisor", type=float, default=4.0, help="of the trace's token counts")
    parser.add_argument("--speed", type=float, default=1.0, help="of the trace's clock")
    parser.add_argument("--data", metavar="DIR", help="prompts of your own, WORKLOAD.jsonl")
    parser.add_argument("--curve", choices=("cpu2",), help="book passes as this machine had them")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--config", metavar="FILE", help="settings of this engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--svg", metavar="FILE", help="write the plot here")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_load)
    parser = kinds.add_parser("soak", help="minutes of load with aborts: nothing may leak or wait")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--config", metavar="FILE", help="settings of this engine")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_soak)


def run_load(args: argparse.Namespace) -> int:
    from . import load, report

    document = load.run(load.Plan.of(args))
    figure = document.pop("figure")
    sys.stdout.write(report.table(document["results"], load.COLUMNS))
    if args.svg:
        Path(args.svg).write_text(figure)
    if args.json:
        report.write(args.json, document)
    return 0


def run_soak(args: argparse.Namespace) -> int:
    """Exit status 1 where a request failed, or memory grew by more than a twentieth once warm."""
    from . import report, soak

    document = soak.run(args.minutes, args.concurrency, args.seed, args.config)
    (row,) = document["results"]
    sys.stdout.write(report.table([row], soak.COLUMNS))
    if args.json:
        report.write(args.json, document)
    return 1 if row["failed"] or row["rss_end_mib"] > 1.05 * row["rss_warm_mib"] else 0
