"""``agentspec draft``: its arguments. Torch is loaded when a stage runs."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

from agentspec import jsontext

from .errors import TrainError
from .spec import METHODS

_STAGES = {
    "prompts": "forty prompts to try the pipeline with, as JSON lines",
    "regenerate": "the target's own answers to the prompts",
    "cache": "the target's features of those answers",
    "train": "train a draft on them, from its checkpoint where there is one",
    "calibrate": "fit the confidence head's temperatures on held-out samples",
    "eval": "accepted length on held-out samples",
    "export": "write a trained draft in another layout",
}


def add_parser(subparsers: Any) -> None:
    """Add ``draft``; each stage sets ``run`` (called with the parsed arguments)."""
    parser = subparsers.add_parser("draft", help="make a draft for a model and its traffic")
    stages = parser.add_subparsers(dest="stage", required=True, metavar="STAGE")
    for name, told in _STAGES.items():
        stage = stages.add_parser(name, help=told, description=told)
        if name != "prompts":
            stage.add_argument("--config", required=True, metavar="FILE", help="draft.toml")
        if name not in ("prompts", "regenerate", "cache"):
            stage.add_argument("--method", choices=METHODS, help="instead of draft.method")
        _OPTIONS.get(name, _none)(stage)
        stage.set_defaults(run=run)


def _minutes(text: str) -> float:
    value = float(text)
    if not 0.0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be above 0")
    return value


def _count(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return value


def _none(stage: argparse.ArgumentParser) -> None:
    pass


def _regenerate(stage: argparse.ArgumentParser) -> None:
    stage.add_argument(
        "--from-traffic", type=Path, metavar="FILE", help="an export of payloads as prompts"
    )


def _train(stage: argparse.ArgumentParser) -> None:
    stage.add_argument("--restart", action="store_true", help="ignore the checkpoint")
    stage.add_argument("--minutes", type=_minutes, help="stop sooner; the next run goes on")


def _eval(stage: argparse.ArgumentParser) -> None:
    stage.add_argument("--on", choices=["held", "train", "all"], default="held")
    stage.add_argument("--engine", action="store_true", help="also generate through the engine")
    stage.add_argument("--n", type=_count, default=200, help="samples at most")


def _export(stage: argparse.ArgumentParser) -> None:
    stage.add_argument("--layout", choices=["deepspec", "speculators"], default="deepspec")
    stage.add_argument("--to", type=Path, required=True, metavar="DIR")
    stage.add_argument("--int8", action="store_true", help="8 bits with a scale a row (deepspec)")
    stage.add_argument("--embeddings", action="store_true", help="the target's tables beside it")


def _calibrate(stage: argparse.ArgumentParser) -> None:
    stage.add_argument("--on", choices=["held", "train", "all"], default="held")


_OPTIONS = {
    "regenerate": _regenerate,
    "train": _train,
    "calibrate": _calibrate,
    "eval": _eval,
    "export": _export,
}


def run(args: argparse.Namespace) -> int:
    """Carry a stage out; its result is JSON on standard output. Raises ``TrainError``."""
    if args.stage == "prompts":
        sys.stdout.write((Path(__file__).parent / "toy_prompts.jsonl").read_text())
        return 0
    if importlib.util.find_spec("torch") is None:
        raise TrainError("drafts need torch: install 'agentspec[engine]'")
    from .config import load

    toml = load(args.config, getattr(args, "method", None))
    result = _run(args, toml)
    if result is not None:
        sys.stdout.write(jsontext.dumps(result, indent=1) + "\n")
    return 0


def _run(args: argparse.Namespace, toml: Any) -> Any:
    if args.stage == "regenerate":
        from .regenerate import regenerate

        return regenerate(toml, traffic=args.from_traffic)
    if args.stage == "cache":
        from .caching import cache

        return cache(toml)
    if args.stage == "train":
        from .trainer import train

        seconds = None if args.minutes is None else args.minutes * 60
        return train(toml, restart=args.restart, stop_after_s=seconds)
    if args.stage == "export":
        from .exporting import export

        return export(toml, args.layout, args.to, int8=args.int8, embeddings=args.embeddings)
    if args.stage == "calibrate":
        from .calibrate import calibrate

        return calibrate(toml, on=args.on)
    from .evaluate import evaluate

    return evaluate(toml, on=args.on, most=args.n, through_engine=args.engine)
