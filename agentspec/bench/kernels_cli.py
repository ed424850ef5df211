"""The arguments of ``agentspec bench kernels``."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from typing import Any


def add(
    kinds: Any,
    numbers: Callable[[str], list[int]],
    words: Callable[[str], list[str]],
    finish: Callable[..., int],
) -> None:
    """The command; ``finish`` prints and writes a result."""
    parser = kinds.add_parser("kernels", help="milliseconds of forward passes, whole and by part")
    parser.add_argument("--n", type=int, default=15, help="rounds (default 15)")
    parser.add_argument("--contexts", type=numbers, default="512,2048,6144", metavar="N,N")
    parser.add_argument("--rows", type=numbers, default="1,4,8,16,512", metavar="N,N")
    parser.add_argument(
        "--ops", type=words, help="(default: all,linear,head,attend,rest; on cuda every kernel)"
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--no-prefill", action="store_true", help="leave out whole prompts")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--isa", help="instruction set (default: the widest one)")
    parser.add_argument("--weights", help="GGUF file (default: the embedded model)")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")

    def run(args: argparse.Namespace) -> int:
        return finish(*(_cuda if args.device == "cuda" else _cpu)(args), args.json)

    parser.set_defaults(run=run)


def _cpu(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from . import kernels

    plan = kernels.Plan(
        count=args.n,
        contexts=args.contexts,
        rows=args.rows,
        ops=args.ops or ["all", "linear", "head", "attend", "rest"],
        prefill=not args.no_prefill,
        threads=args.threads or len(os.sched_getaffinity(0)),
        isa=args.isa,
        weights=args.weights,
    )
    return kernels.run(plan), kernels.COLUMNS


def _cuda(args: argparse.Namespace) -> tuple[dict[str, Any], list[str]]:
    from . import kernels_gpu
    from .kernels_gpu_cases import CASES

    plan = kernels_gpu.Plan(
        count=args.n, rows=args.rows, contexts=args.contexts, ops=args.ops or list(CASES)
    )
    return kernels_gpu.run(plan), kernels_gpu.COLUMNS
