"""The arguments of ``agentspec bench draft``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any


def add(kinds: Any, numbers: Callable[[str], list[int]], finish: Callable[..., int]) -> None:
    """The command; ``finish`` prints and writes a result."""
    parser = kinds.add_parser("draft", help="what a round of drafting costs beside a pass")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.add_argument("--n", type=int, default=200, help="rounds (default 200)")
    parser.add_argument("--context", type=int, default=512, help="tokens before the pass")
    parser.add_argument("--layers", type=numbers, default="1,2", metavar="N,N")
    parser.add_argument(
        "--head-rows", type=numbers, default="0,24576,16384", help="ids that are drafted; 0: all"
    )
    parser.add_argument("--bits", type=numbers, default="8,4", help="a weight of layers and head")
    parser.add_argument("--tokens", type=numbers, default="3,7", help="that are asked for")
    parser.add_argument("--block", type=int, default=7, help="rows of a block")
    parser.add_argument("--rank", type=int, default=64, help="of the Markov head")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draft", type=Path, help="a trained draft's folder instead of noise")
    parser.set_defaults(run=lambda args: run(args, finish))


def run(args: argparse.Namespace, finish: Callable[..., int]) -> int:
    from . import draft

    plan = draft.Plan(
        count=args.n,
        context=args.context,
        layers=args.layers,
        head_rows=args.head_rows,
        bits=args.bits,
        tokens=args.tokens,
        block=args.block,
        rank=args.rank,
        threads=args.threads,
        draft=args.draft,
    )
    return finish(draft.run(plan), draft.COLUMNS, args.json)
