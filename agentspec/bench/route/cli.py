"""``agentspec route explain``, ``replay`` and ``bench``."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import msgspec

from agentspec.bench import report
from agentspec.settings import Settings, SettingsError, with_defaults

from .fleet import FLEET, Change

_COLUMNS = ("policy", "cost_usd", "slo", "loss_usd", "regret", "worst_regret", "adapted")
_LOG_COLUMNS = ("policy", "cost_usd", "slo", "loss_usd", "loss_low", "loss_high", "regret")
_LOG_COLUMNS = (*_LOG_COLUMNS, "support", "effective", "n")


def add_parser(
    commands: Any,
    settings: Callable[[argparse.ArgumentParser], None],
    read: Callable[[argparse.Namespace], Settings],
) -> None:
    """The commands. settings: adds the options of every command; read: what they mean."""
    kinds = commands.add_parser("route", help="why requests go where they go").add_subparsers(
        dest="what", required=True
    )
    why = kinds.add_parser("explain", help="the decision behind one request")
    why.add_argument("id", metavar="ID", help="the request's id")
    again = kinds.add_parser("replay", help="policies on recorded traffic, or on the own ledger")
    again.add_argument("--trace", metavar="CSV", help="calls of agents, through a simulated fleet")
    again.add_argument("--policy", metavar="P,P", help="(default: all)")
    again.add_argument("--json", metavar="FILE", help="write the results here as well")
    again.add_argument("--n", type=int, default=6000, help="calls, or newest rows of the ledger")
    again.add_argument("--burn-in", type=int, default=2000, help="calls left out of the sums")
    again.add_argument("--seeds", type=int, default=5, help="worlds to run through")
    again.add_argument("--every-s", type=float, default=60.0, help="between traces that begin")
    again.add_argument(
        "--change",
        metavar="AT:PLACE:SLOWER:DEARER",
        help="from that call on the place is so many times slower and dearer",
    )
    again.add_argument("--ttft-ms", type=float, default=3000.0, help="the target (with --trace)")
    again.add_argument("--tpot-ms", type=float, default=20.0, help="the target (with --trace)")
    bench = kinds.add_parser("bench", help="how long a decision takes")
    bench.add_argument("--rows", type=int, default=1_000_000, help="of history (default 1,000,000)")
    bench.add_argument("--backends", type=int, default=4)
    bench.add_argument("--n", type=int, default=20_000, help="decisions (default 20,000)")
    bench.add_argument("--json", metavar="FILE", help="write the results here as well")
    for parser, run in ((why, _explain), (again, _replay), (bench, _bench)):
        settings(parser)
        parser.set_defaults(run=lambda args, run=run: run(args, read(args)))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _explain(args: argparse.Namespace, settings: Settings) -> int:
    from agentspec.routing.explain import explain
    from agentspec.store.migrate import require_file
    from agentspec.store.reader import Reader

    require_file(settings.database_url)
    reader = Reader(settings.database_url)
    try:
        record = reader.request(args.id)
    finally:
        reader.close()
    if record is None:
        raise SettingsError(f"no request '{args.id}' in the ledger")
    for line in explain(record.decision):
        _say(line)
    return 0


def _bench(args: argparse.Namespace, settings: Settings) -> int:
    from .decide import run

    if args.n < 1 or args.backends < 1 or args.rows < 0:
        raise SettingsError("--n and --backends must be at least 1, --rows at least 0")
    rows = [asdict(run(args.rows, args.backends, args.n, report.progress))]
    _say(report.table(rows, list(rows[0])))
    if args.json:
        report.write(args.json, report.build(rows))
    return 0


def _replay(args: argparse.Namespace, settings: Settings) -> int:
    if args.n < 1 or args.seeds < 1 or args.burn_in < 0:
        raise SettingsError("--n and --seeds must be at least 1, --burn-in at least 0")
    try:
        rows, columns = _on_trace(args, settings) if args.trace else _on_log(args, settings)
    except ValueError as error:
        raise SettingsError(str(error)) from None
    _say(report.table(rows, columns))
    if args.json:
        report.write(args.json, report.build(rows, trace=args.trace))
    return 0


def _on_trace(args: argparse.Namespace, settings: Settings) -> tuple[list[dict[str, Any]], Any]:
    from .table import Plan, policies, table
    from .trace import read

    if args.burn_in >= args.n:
        raise ValueError("--burn-in must be below --n")
    routing = msgspec.structs.replace(settings.routing, ttft_ms=args.ttft_ms, tpot_ms=args.tpot_ms)
    names = args.policy.split(",") if args.policy else policies(FLEET)
    changes = (_change(args.change),) if args.change else ()
    plan = Plan(args.n, args.burn_in, args.every_s, tuple(range(1, args.seeds + 1)), changes)
    rows = table(read(args.trace), FLEET, routing, names, plan, report.progress)
    found = []
    for row in rows:
        told = asdict(row)
        found.append({"cost_usd": told.pop("usd"), **told, "n": args.n - args.burn_in})
    return found, _COLUMNS


def _change(text: str) -> Change:
    parts = text.split(":")
    known = [place.name for place in FLEET]
    if len(parts) != 4 or parts[1] not in known:
        raise ValueError(f"--change is like 3000:dspark:3:1, its place one of {', '.join(known)}")
    return Change(int(parts[0]), parts[1], float(parts[2]), float(parts[3]))


def _on_log(args: argparse.Namespace, settings: Settings) -> tuple[list[dict[str, Any]], Any]:
    from agentspec.store.history import read_history
    from agentspec.store.migrate import require_file

    from .logged import verdicts

    settings = with_defaults(settings)
    models = tuple(sorted(n for n, m in settings.models.items() if len(m.backends) > 1))
    if not models:
        raise ValueError("no model has more than one backend: there was nothing to choose")
    require_file(settings.database_url)
    rows = read_history(settings.database_url, args.n, models)
    backends = dict.fromkeys(b for name in models for b in settings.models[name].backends)
    usual = ["fixed", "cheapest", "fastest", "slo", "learned", *(f"static:{b}" for b in backends)]
    names = args.policy.split(",") if args.policy else usual[1:]
    found = []
    for one in verdicts(rows, settings, names):
        logged = one.loss.logged
        found.append(
            {
                "policy": one.policy,
                "cost_usd": one.usd.dr.mean * one.usd.requests,
                "slo": one.slo.dr.mean,
                "regret": one.loss.dr.mean / logged - 1.0 if logged else math.nan,
                "loss_usd": one.loss.dr.mean,
                "loss_low": one.loss.dr.low,
                "loss_high": one.loss.dr.high,
                "support": one.loss.support,
                "effective": one.loss.effective,
                "n": one.loss.requests,
                "estimates": {name: asdict(getattr(one.loss, name)) for name in _ESTIMATES},
            }
        )
    return found, _LOG_COLUMNS


_ESTIMATES = ("ips", "snips", "dr")
