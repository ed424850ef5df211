"""The arguments of ``agentspec bench engine``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any


def add(
    kinds: Any,
    common: Callable[[argparse.ArgumentParser, int, str], None],
    numbers: Callable[[str], list[int]],
    words: Callable[[str], list[str]],
    finish: Callable[..., int],
) -> None:
    """The command; ``common`` adds what benches share, ``finish`` prints and writes a result."""
    parser = kinds.add_parser("engine", help="decode speed of this engine, llama.cpp, transformers")
    common(parser, 6, "1")
    parser.add_argument("--workloads", type=words, default="tool,edit,code,chat,edit-replay")
    parser.add_argument(
        "--contexts", type=numbers, default="0", help="prompt tokens to pad to, N,N; 0: as it is"
    )
    parser.add_argument("--modes", type=words, default="plain,speculative")
    parser.add_argument("--engines", type=words, default="agentspec,llamacpp,transformers")
    parser.add_argument("--max-tokens", type=int, default=192, help="output limit of one run")
    parser.add_argument("--threads", type=int, default=0, help="of every engine; 0: all cores")
    parser.add_argument("--weights", help="GGUF file (default: the embedded model)")
    parser.add_argument("--data", metavar="DIR", help="WORKLOAD.jsonl, SWE-agent's *.traj[.gz]")
    parser.add_argument("--peers", default=".peers", help="what scripts/peers.sh made")
    parser.add_argument("--config", metavar="FILE", help="settings of this engine")
    parser.add_argument(
        "--device", choices=["cpu", "cuda"], default="cpu",
        help="cuda: a model of random weights, drafts of a set acceptance",
    )  # fmt: skip
    parser.add_argument(
        "--widths", type=numbers, default="1,2,4,8,16", help="on cuda: rows of a sequence in a pass"
    )
    parser.add_argument(
        "--acceptance", type=_shares, default="0.6,0.8,1.0", help="on cuda: of a drafted token"
    )

    def run(args: argparse.Namespace) -> int:
        return _cuda(args, finish) if args.device == "cuda" else _cpu(args, finish)

    parser.set_defaults(run=run)


def _shares(text: str) -> list[float]:
    found = [float(part) for part in text.split(",")]
    if not all(0.0 <= share <= 1.0 for share in found):
        raise argparse.ArgumentTypeError(f"{text}: shares lie between 0 and 1")
    return found


def _cpu(args: argparse.Namespace, finish: Callable[..., int]) -> int:
    from . import engines

    document = engines.run(engines.Plan.of(args))
    return finish(document, engines.COLUMNS, args.json) or int(bool(document["failed"]))


def _cuda(args: argparse.Namespace, finish: Callable[..., int]) -> int:
    from . import engine_gpu

    plan = engine_gpu.Plan(
        count=args.n,
        sequences=args.concurrency,
        widths=args.widths,
        contexts=[context or 512 for context in args.contexts],
        acceptance=args.acceptance,
        tokens=args.max_tokens,
    )
    return finish(engine_gpu.run(plan), engine_gpu.COLUMNS, args.json)
