"""``agentspec bench ...``: arguments of the benches, and their tables on standard output."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from . import draft_cli, engine_cli, kernels_cli, load_cli, simulate_cli
from .prompt_sets import cli as prompts_cli


def words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def numbers(text: str) -> list[int]:
    return [int(word) for word in words(text)]


def add_parser(subparsers: Any) -> None:
    """Add ``bench`` with its subcommands; each sets ``run`` (called with the parsed arguments)."""
    bench = subparsers.add_parser("bench", help="measure engines and gateway beside their peers")
    kinds = bench.add_subparsers(dest="bench", required=True)
    engine_cli.add(kinds, _common, numbers, words, _finish)
    _add_gateway(kinds)
    _add_tools(kinds)
    _add_grammar(kinds)
    _add_constrain(kinds)
    _add_calls(kinds)
    _add_replay(kinds)
    _add_kill(kinds)
    _add_store(kinds)
    _add_quality(kinds)
    _add_start(kinds)
    kernels_cli.add(kinds, numbers, words, _finish)
    _add_limits(kinds)
    _add_page(kinds)
    load_cli.add(kinds)
    draft_cli.add(kinds, numbers, _finish)
    simulate_cli.add(kinds)
    prompts_cli.add(kinds)


def _common(parser: argparse.ArgumentParser, count: int, concurrency: str) -> None:
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.add_argument("--n", type=int, default=count, help=f"runs of each row (default {count})")
    parser.add_argument("--concurrency", type=numbers, default=concurrency, metavar="N,N")
    parser.add_argument("--seed", type=int, default=0)


def _add_gateway(kinds: Any) -> None:
    parser = kinds.add_parser("gateway", help="latency the gateway adds to a stand-in upstream")
    _common(parser, 192, "1,16")
    parser.add_argument("--streams", choices=["both", "on", "off"], default="both")
    parser.add_argument("--delay-ms", type=float, default=20.0, help="upstream's first byte after")
    parser.add_argument("--chunk-ms", type=float, default=20.0, help="between its chunks")
    parser.add_argument("--chunks", type=int, default=10, help="content chunks of one answer")
    parser.set_defaults(run=run_gateway)


def _add_tools(kinds: Any) -> None:
    parser = kinds.add_parser("tools", help="function calling: free, constrained, canonical")
    parser.add_argument("--data", required=True, metavar="FILE", help="tasks in BFCL's form")
    parser.add_argument("--n", type=int, default=300, help="tasks (default 300)")
    parser.add_argument("--modes", type=words, default="free,constrained,canonical")
    parser.add_argument("--max-tokens", type=int, default=512, help="output limit of one answer")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--config", metavar="FILE", help="settings of this engine")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_tools)


def _add_grammar(kinds: Any) -> None:
    parser = kinds.add_parser("grammar", help="schemas with instances: who judges them rightly")
    parser.add_argument("--data", required=True, metavar="DIR", help="*.jsonl[.gz] with schemas")
    parser.add_argument(
        "--engines", type=words, default="agentspec,llguidance,xgrammar,outlines", metavar="NAME,.."
    )
    parser.add_argument("--n", type=int, default=0, help="schemas, spread evenly (default: all)")
    parser.add_argument("--limit-s", type=float, default=2.0, help="for compiling one schema")
    parser.add_argument("--peers", default=".peers", help="what scripts/peers.sh made")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_grammar)


def _add_constrain(kinds: Any) -> None:
    parser = kinds.add_parser("constrain", help="what tools' grammars cost, and what they save")
    parser.add_argument("--n", type=int, default=100, help="rounds of first tokens (default 100)")
    parser.add_argument("--calls", type=int, default=10, help="tool calls written (default 10)")
    parser.add_argument("--max-tokens", type=int, default=192, help="output limit of one call")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--config", metavar="FILE", help="settings of this engine")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_constrain)


def _add_calls(kinds: Any) -> None:
    parser = kinds.add_parser("calls", help="calls by blind chance: any legal path must end valid")
    parser.add_argument("--data", required=True, type=words, metavar="FILE,FILE")
    parser.add_argument("--walks", type=int, default=3, help="calls of each tool (default 3)")
    parser.add_argument("--n", type=int, default=0, help="tools of each file (default: all)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_calls)


def _add_replay(kinds: Any) -> None:
    parser = kinds.add_parser("replay", help="recorded requests of real clients, sent again")
    parser.add_argument("--data", required=True, metavar="DIR", help="CLIENT/NN.json below it")
    parser.add_argument("--url", default="http://127.0.0.1:8000/v1")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--max-tokens", type=int, help="shorten every answer to this")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_replay)


def _add_kill(kinds: Any) -> None:
    parser = kinds.add_parser("kill", help="kill -9 under load: clients and ledger must agree")
    parser.add_argument("--n", type=int, default=20, help="kills (default 20)")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_kill)


def _add_store(kinds: Any) -> None:
    parser = kinds.add_parser("store", help="the ledger: pace, a database away, questions' times")
    parser.add_argument("--databases", type=words, default="sqlite,postgresql")
    parser.add_argument("--parts", type=words, default="writer,away,kills,migrations,synthetic")
    parser.add_argument("--n", type=int, default=100_000, help="rows for writer and migrations")
    parser.add_argument("--synthetic", type=int, default=1_000_000, help="rows to ask questions of")
    parser.add_argument("--away", type=float, default=60.0, help="seconds without a database")
    parser.add_argument("--kills", type=int, default=20, help="of each kind of process")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_store)


def _add_quality(kinds: Any) -> None:
    parser = kinds.add_parser("quality", help="what a number format costs, in nats a token")
    parser.add_argument(
        "--formats",
        type=words,
        default="fp32,bf16,int8",
        help="the first is the reference; fp32, bf16, int8, int8:avx2, int8+ntk2, llamacpp",
    )
    parser.add_argument("--tokens", type=int, default=24_000, help="of all windows together")
    parser.add_argument("--window", type=int, default=1024, help="tokens read in one piece")
    parser.add_argument("--buckets", type=numbers, default="", help="positions told apart, N,N")
    parser.add_argument("--data", type=words, default="", metavar="FILE,FILE", help="texts instead")
    parser.add_argument("--weights", help="GGUF file (default: the embedded model)")
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--peers", default=".peers", help="what scripts/peers.sh made")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_quality)


def _add_start(kinds: Any) -> None:
    parser = kinds.add_parser("start", help="a fresh engine: to its first token, and its memory")
    parser.add_argument("--n", type=int, default=5, help="starts (default 5)")
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--config", metavar="FILE", help="settings of the engine")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_start)
    parser = kinds.add_parser("pair", help="two engines at once on this machine")
    parser.add_argument("--n", type=int, default=8, help="answers of each (default 8)")
    parser.add_argument("--threads", type=int, default=0, help="of each engine; 0: all cores")
    parser.add_argument("--config", metavar="FILE", help="settings of the engines")
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_pair)


def _add_limits(kinds: Any) -> None:
    parser = kinds.add_parser("limits", help="limits under many clients on several gateways")
    parser.add_argument("--n", type=int, default=2000, help="requests of each row (default 2000)")
    parser.add_argument("--databases", type=words, default="sqlite,postgresql", metavar="NAME,URL")
    parser.add_argument("--gateways", type=int, default=2)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--json", metavar="FILE", help="write the results here as well")
    parser.set_defaults(run=run_limits)


def _add_page(kinds: Any) -> None:
    parser = kinds.add_parser("page", help="a Markdown page out of files that --json wrote")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--out", metavar="FILE", help="write it here, not to standard output")
    parser.set_defaults(run=run_page)


def _finish(document: dict[str, Any], columns: list[str], path: str | None) -> int:
    from . import report

    sys.stdout.write(report.table(document["results"], columns))
    if path:
        report.write(path, document)
    return 0


def run_gateway(args: argparse.Namespace) -> int:
    from . import gateway
    from .upstream import Script

    document = gateway.run(
        concurrency=args.concurrency,
        count=args.n,
        streams={"both": [False, True], "on": [True], "off": [False]}[args.streams],
        script=Script(args.delay_ms / 1000, args.chunk_ms / 1000, args.chunks),
        seed=args.seed,
    )
    return _finish(document, gateway.COLUMNS, args.json)


def run_tools(args: argparse.Namespace) -> int:
    from pathlib import Path

    from . import tools

    document = tools.run(
        Path(args.data), args.n, args.seed, args.modes, args.max_tokens, args.config
    )
    return _finish(document, tools.COLUMNS, args.json)


def run_grammar(args: argparse.Namespace) -> int:
    """Exit status 1 when agentspec accepts an instance that is not valid."""
    from pathlib import Path

    from . import grammar

    document = grammar.run(
        Path(args.data), args.engines, args.n or None, args.limit_s, Path(args.peers)
    )
    _finish(document, grammar.COLUMNS, args.json)
    rows = [row for row in document["results"] if row["engine"] == "agentspec"]
    return 1 if any(row["invalid_accepted"] for row in rows) else 0


def run_constrain(args: argparse.Namespace) -> int:
    from . import constrain

    threads = args.threads or len(os.sched_getaffinity(0))
    document = constrain.run(args.n, args.calls, args.max_tokens, threads, args.config)
    return _finish(document, constrain.COLUMNS, args.json)


def run_calls(args: argparse.Namespace) -> int:
    """Exit status 1 when a call is not valid."""
    from pathlib import Path

    from . import random_calls

    paths = [Path(name) for name in args.data]
    document = random_calls.run(paths, args.walks, args.seed, args.n or None)
    _finish(document, random_calls.COLUMNS, args.json)
    return 1 if any(row["valid"] < row["calls"] for row in document["results"]) else 0


def run_replay(args: argparse.Namespace) -> int:
    """Exit status 1 when an answer is wrong."""
    from pathlib import Path

    from . import replay, report

    rows = replay.replay(args.url, Path(args.data), args.model, args.max_tokens)
    by_client = replay.summary(rows)
    _finish(report.build(rows) | {"by_client": by_client}, replay.COLUMNS, args.json)
    sys.stdout.write("\n" + report.table(by_client, replay.SUMMARY_COLUMNS))
    return 1 if any(row["verdict"] == "wrong" for row in rows) else 0


def run_kill(args: argparse.Namespace) -> int:
    """Exit status 1 when the ledger and what a client saw disagree."""
    import asyncio

    from . import kill, report

    rows = asyncio.run(kill.run(args.n, args.streams, args.model, args.seed))
    _finish(report.build(rows), kill.COLUMNS, args.json)
    return 1 if any(row["wrong"] for row in rows) else 0


def run_store(args: argparse.Namespace) -> int:
    """Exit status 1 when a row is missing or a request was harmed."""
    from . import store

    plan = store.Plan(args.databases, args.parts, args.n, args.synthetic, args.away, args.kills)
    document = store.run(plan)
    _finish(document, store.COLUMNS, args.json)
    return 1 if any(row.get("lost") or row.get("failed") for row in document["results"]) else 0


def run_quality(args: argparse.Namespace) -> int:
    from pathlib import Path

    from . import quality

    plan = quality.Plan(
        formats=args.formats,
        tokens=args.tokens,
        window=args.window,
        buckets=args.buckets,
        files=[Path(name) for name in args.data],
        weights=args.weights,
        threads=args.threads or len(os.sched_getaffinity(0)),
        peers=Path(args.peers),
    )
    return _finish(quality.run(plan), quality.COLUMNS, args.json)


def run_start(args: argparse.Namespace) -> int:
    from . import start

    return _finish(start.start(args.n, args.model, args.config), start.START_COLUMNS, args.json)


def run_pair(args: argparse.Namespace) -> int:
    from . import start

    return _finish(start.pair(args.n, args.threads, args.config), start.PAIR_COLUMNS, args.json)


def run_limits(args: argparse.Namespace) -> int:
    """Exit status 1 when a limit did not hold."""
    from . import limits

    plan = limits.Plan(args.databases, gateways=args.gateways, clients=args.clients, n=args.n)
    document = limits.run(plan)
    _finish(document, limits.COLUMNS, args.json)
    return 1 if limits.wrong(document["results"]) else 0


def run_page(args: argparse.Namespace) -> int:
    from pathlib import Path

    from . import page

    text = page.page([Path(name) for name in args.files])
    if args.out:
        Path(args.out).write_text(text)
    else:
        sys.stdout.write(text)
    return 0
