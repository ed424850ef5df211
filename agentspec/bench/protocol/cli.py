"""The command line of ``agentspec protocol``."""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .own import Own

COLUMNS = [
    *("concurrency", "arm", "tok_s", "over_plain", "low", "high", "answer", "ttft_p50_ms"),
    *("ttft_p99_ms", "tpot_p50_ms", "tpot_p99_ms", "e2e_p50_ms", "e2e_p99_ms", "n", "failed"),
]


def _words(text: str) -> tuple[str, ...]:
    return tuple(word for word in text.split(",") if word)


def _numbers(text: str) -> tuple[int, ...]:
    found = tuple(int(word) for word in _words(text))
    if not found or min(found) < 1:
        raise argparse.ArgumentTypeError("must be numbers of 1 or more")
    return found


def _positive(text: str) -> int:
    return _numbers(text)[0]


def add_parser(commands: Any) -> None:
    parser = commands.add_parser(
        "protocol", help="the five-step adoption check of a speculative set-up"
    )
    parser.add_argument("--url", metavar="URL", help="an endpoint (default: an engine of our own)")
    parser.add_argument("--baseline-url", metavar="URL", help="the same model, no speculation")
    parser.add_argument("--metrics-url", metavar="URL", help="its Prometheus page")
    parser.add_argument("--model", help="its name at the endpoint (default: the first one)")
    parser.add_argument("--api-key-env", metavar="NAME", help="variable that holds the API key")
    parser.add_argument("--draft", metavar="PATH", help="a trained draft, for our own engine")
    parser.add_argument("--config", metavar="FILE", help="settings of our own engine")
    parser.add_argument(
        "--drafts-are",
        choices=("model", "copied", "unknown"),
        default="unknown",
        help="who drafts at a server that doesn't tell",
    )
    parser.add_argument("--concurrency", type=_numbers, default=(1, 2, 4, 8), metavar="N,N")
    parser.add_argument("--workloads", type=_words, default=("tool", "edit", "code", "chat"))
    parser.add_argument("--n", type=_positive, default=4, help="requests a stream and round")
    parser.add_argument("--rounds", type=_positive, default=7, help="counted ones (default 7)")
    parser.add_argument("--max-tokens", type=_positive, default=128, help="of one answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--html", metavar="FILE", help="write the report here")
    parser.add_argument("--json", metavar="FILE", help="write the figures here")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit status 1 where requests failed."""
    from agentspec.bench import report
    from agentspec.bench.workloads import BenchError

    from .own import engine
    from .page import page

    if args.url and (args.draft or args.config):
        raise BenchError("--draft and --config are for our own engine, not for --url")
    started = nullcontext(None) if args.url else engine(args.config, args.draft)
    with started as own:
        document = asyncio.run(check(args, own))
    sys.stdout.write(report.table(document["results"], COLUMNS))
    sys.stdout.write(f"\n{document['baseline']}\nVerdict: {document['verdict']}\n")
    for line in (*document["reasons"], *document["memory"]["said"]):
        sys.stdout.write(f"- {line}\n")
    if args.html:
        Path(args.html).write_text(page(document))
    if args.json:
        report.write(args.json, document)
    return 1 if any(row["failed"] for row in document["results"]) else 0


async def check(
    args: argparse.Namespace, own: Own | None, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any]:
    """The document. clock: seconds, of the client. Raises ``BenchError``."""
    import aiohttp

    from agentspec.settings import secret

    from .endpoint import SILENCE_S, probe
    from .memory import headroom
    from .run import Arms, Plan, document, measured

    plan = Plan(
        concurrency=args.concurrency,
        workloads=args.workloads,
        count=args.n,
        rounds=args.rounds,
        max_tokens=args.max_tokens,
        foreign=args.drafts_are,
        draft=args.draft,
        seed=args.seed,
    )
    url = own.url if own else args.url
    key = secret(args.api_key_env)
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=SILENCE_S)
    # llama-server closes connections that it has answered on without saying so.
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as session:
        drafted = await probe(session, url, args.model, args.metrics_url, key)
        baseline = None
        if args.baseline_url:
            baseline = await probe(session, args.baseline_url, None, None, key)
        for endpoint in filter(None, (drafted, baseline)):
            endpoint.clock = clock
        arms = Arms.of(drafted, baseline)
        points = await measured(plan, arms)
        return document(plan, arms, points, headroom(points, own))
