"""The command line of ``agentspec compare``."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

WORKLOADS = "tool,edit,edit-replay,code,chat"


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def temperatures(text: str) -> list[float]:
    """Raises ``ValueError`` for one that is not at least 0."""
    values = [float(word) for word in words(text)]
    if any(not 0 <= value <= 2 for value in values):
        raise ValueError(text)
    return values


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise ValueError(text)
    return value


def add_parser(subparsers: Any) -> None:
    """Add ``compare``; sets ``run`` (called with the parsed arguments)."""
    add = (parser := subparsers.add_parser("compare", help=_HELP)).add_argument
    add("--target", metavar="PATH", help="model: GGUF or safetensors (default: the embedded one)")
    add("--methods", type=words, default="", metavar="NAME,..", help="default: all there are")
    add("--drafts", type=words, default="", metavar="NAME=PATH,..", help="trained drafts' folders")
    add("--workloads", type=words, default=WORKLOADS, metavar="NAME,..")
    add("--masked", choices=["both", "yes", "no"], default="both", help="drafts know the grammar")
    add("--temperature", type=temperatures, default="0", metavar="T,T")
    add("--sampling", choices=["seeded", "free"], default="seeded", help="at temperatures above 0")
    add("--schedule", type=words, default="adaptive", metavar="NAME,..", help="adaptive, k1 to k99")
    add("--n", type=positive, default=8, help="prompts of each workload (default 8)")
    add("--samples", type=positive, default=1, help="of each prompt at temperatures above 0")
    add("--max-tokens", type=positive, default=192, help="output limit of one answer")
    add("--context", type=int, default=0, help="prompt tokens to pad to; 0: as it is")
    add("--threads", type=int, default=0, help="0: those of the settings")
    add("--data", metavar="DIR", help="WORKLOAD.jsonl, SWE-agent's *.traj[.gz]")
    add("--training", type=words, default="", metavar="FILE,..", help="prompts of the drafts")
    add("--llamacpp", metavar="DIR", help="what scripts/peers.sh made: the same drafts there")
    add("--config", metavar="FILE", help="settings of this engine")
    add("--seed", type=int, default=0)
    add("--json", metavar="FILE", help="write the document here")
    add("--markdown", metavar="FILE", help="write tables here")
    add("--plots", metavar="DIR", help="write SVG files here")
    add(
        "--claims",
        nargs="?",
        const="docs/claims.md",
        metavar="FILE",
        help="only write the page of published figures (default docs/claims.md)",
    )
    add("--measured", metavar="FILE", help="with --claims: what --json wrote, to judge them by")
    parser.set_defaults(run=run)


_HELP = "every way of drafting on the same prompts, beside plain decoding"


def run(args: argparse.Namespace) -> int:
    """Exit status 1 where, on an exact backend, a text differs from plain decoding's."""
    if args.claims:
        return _claims(Path(args.claims), args.measured)
    from agentspec.bench import report

    from . import figures, page, plots
    from .run import Plan
    from .run import run as measure

    document = measure(Plan.of(args))
    sys.stdout.write(report.table(document["results"], figures.COLUMNS))
    if args.json:
        report.write(args.json, document)
    if args.markdown:
        Path(args.markdown).write_text(page.page(document))
    if args.plots:
        plots.write(Path(args.plots), document)
    for wrong in document["other_text"]:
        named = {name: wrong[name] for name in ("case", "method", "temperature", "seed")}
        report.progress(f"error: text differs from plain decoding's: {named}")
    return 1 if document["other_text"] and document["exact"] else 0


def _claims(path: Path, measured: str | None) -> int:
    from .claims_page import page

    document = None
    if measured is not None:
        document = json.loads(Path(measured).read_text())
        # What the page was judged by stays beside it, without the single answers.
        kept = {k: v for k, v in document.items() if k not in ("answers", "other_text")}
        path.with_suffix(".json").write_text(json.dumps(kept) + "\n")
    path.write_text(page(document))
    sys.stdout.write(f"{path}: written\n")
    return 0
