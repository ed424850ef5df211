"""The command line of ``agentspec plan``."""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any

from agentspec import jsontext

from .hardware import GPUS, PlanError, gpu
from .memory import splits
from .planner import Ask, Simulator, plan, rates_of
from .presets import GUESS, PRESETS, draft, model
from .roofline import Machine


def add_parser(commands: Any, simulator: Simulator | None = None) -> None:
    """simulator: runs the scheduler on a cost curve; may raise ``ImportError``."""
    parser = commands.add_parser("plan", help="does a model fit on GPUs, does speculation pay")
    names = ", ".join(preset.name for preset in PRESETS.values())
    parser.add_argument(
        "--model", required=True, metavar="NAME|FILE", help=f"config.json, or {names}"
    )
    parser.add_argument(
        "--draft",
        metavar="DRAFT",
        help="none, dspark[:LAYERS[:BLOCK]], eagle3[:TOKENS], or a smaller model",
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N")
    parser.add_argument("--gpu", default="H100", metavar="NAME", help=", ".join(GPUS))
    parser.add_argument("--context", type=int, default=8192, help="tokens that a request holds")
    parser.add_argument("--concurrency", type=int, help="requests at once that the verdict is for")
    parser.add_argument("--acceptance", type=float, help="of each drafted token, 0 to 1")
    parser.add_argument("--price", type=float, metavar="USD", help="of one GPU for an hour")
    parser.add_argument("--json", metavar="FILE", help="write the plan here as well")
    parser.set_defaults(run=lambda args: run(args, simulator))


def asked(args: argparse.Namespace) -> Ask:
    """Raises ``PlanError`` naming the option, or ``OSError``."""
    for name in ("gpus", "context", "concurrency"):
        value = getattr(args, name)
        if value is not None and value < 1:
            raise PlanError(f"--{name} must be 1 or more")
    if args.acceptance is not None and not 0.0 <= args.acceptance <= 1.0:
        raise PlanError("--acceptance must lie between 0 and 1")
    if args.price is not None and not (math.isfinite(args.price) and args.price >= 0.0):
        raise PlanError("--price must be 0 or more")
    preset = model(args.model)
    if not splits(preset.model, args.gpus):
        raise PlanError(
            f"--gpus: {args.gpus} can't share the {preset.model.heads} heads of attention evenly "
            f"({preset.model.kv_heads} of keys and values), and no engine starts so"
        )
    own = args.draft is None
    chosen = preset.draft if own else draft(args.draft, preset.model)
    rates, source = rates_of(preset), preset.source
    if args.acceptance is not None:
        rates, source = (args.acceptance, args.acceptance), "as asked for"
    elif not own:
        source += " (of the preset's own draft, not of this one)"
    return Ask(
        preset=preset,
        draft=chosen,
        draft_path=preset.draft_path if own else None,
        machine=Machine(gpu(args.gpu), args.gpus),
        context=args.context,
        concurrency=args.concurrency,
        rates=rates,
        rates_source=source,
        assumed=source.startswith(GUESS),
        price=args.price,
    )


def run(args: argparse.Namespace, simulator: Simulator | None) -> int:
    """Exit status 1 where it does not fit."""
    from .text import render

    ask = asked(args)
    try:
        document = plan(ask, simulator)
    except ImportError:
        document = plan(ask)
        document["basis"].append("Not simulated: the engine is not installed here.")
    sys.stdout.write(render(document))
    if args.json:
        Path(args.json).write_text(jsontext.dumps(document, indent=1) + "\n")
    return 0 if document["memory"]["without_draft"]["requests"] else 1
