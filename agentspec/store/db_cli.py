"""``agentspec db prune|export|rebuild-rollups``: upkeep by hand, on a running ledger too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from .dates import EXPECTED, is_date


def add_parsers(
    kinds: argparse._SubParsersAction,
    settings: Callable[[argparse.ArgumentParser], None],
    run: Callable[[str], Callable[[argparse.Namespace], int]],
) -> None:
    """The commands. settings: adds the options of every command; run: who carries one out."""
    prune = kinds.add_parser("prune", help="delete what is older than a day")
    prune.add_argument("what", choices=["requests", "payloads", "minutes"])
    prune.add_argument("--before", type=_day, required=True, metavar="2026-07-01", help="UTC")
    export = _export_parser(kinds)
    rebuild = kinds.add_parser("rebuild-rollups", help="make the rollups anew from the rows")
    for name, parser in (("prune", prune), ("export", export), ("rebuild-rollups", rebuild)):
        settings(parser)
        parser.set_defaults(run=run(name))


def _export_parser(kinds: argparse._SubParsersAction) -> argparse.ArgumentParser:
    export = kinds.add_parser("export", help="rows as Parquet files, kept payloads as JSON lines")
    export.add_argument("--to", type=Path, metavar="DIR", help="rows, a Parquet file a day")
    export.add_argument(
        "--payloads",
        type=Path,
        metavar="FILE",
        help="what was asked and answered, as it was kept, a JSON object a line",
    )
    export.add_argument("--surface", metavar="chat", help="payloads of this surface only")
    export.add_argument("--status", metavar="ok", help="payloads of such requests only")
    export.add_argument("--since", type=_day, metavar="2026-07-01", help="UTC, inclusive")
    export.add_argument("--until", type=_day, metavar="2026-08-01", help="UTC, exclusive")
    return export


def run(name: str, args: argparse.Namespace, url: str) -> int:
    """Carry a command out on the ledger at ``url``. Raises ``StoreError``, ``SQLAlchemyError``."""
    return {"prune": _prune, "export": _export, "rebuild-rollups": _rebuild}[name](args, url)


def _day(text: str) -> int:
    """A day's start, milliseconds UTC."""
    try:
        ts_ms = int(datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).timestamp()) * 1000
    except ValueError:
        raise argparse.ArgumentTypeError(f"not a day like 2026-07-01: {text!r}") from None
    if not is_date(ts_ms):
        raise argparse.ArgumentTypeError(f"not {EXPECTED}: {text!r}")
    return ts_ms


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _prune(args: argparse.Namespace, url: str) -> int:
    from .database import connect
    from .migrate import require_current, require_file
    from .retention import PruneError, prune, rounded
    from .upkeep import now_ms

    if args.before > now_ms():
        raise PruneError("--before lies in the future: that would delete everything there is")
    what = {"requests": "request", "payloads": "payload", "minutes": "minute"}[args.what]
    require_file(url)
    engine = connect(url)
    try:
        require_current(engine)
        rows = prune(engine, what, args.before)
        before = datetime.fromtimestamp(rounded(engine, what, args.before) / 1000, UTC)
    finally:
        engine.dispose()
    more = ", and whole partitions" if engine.dialect.name == "postgresql" else ""
    _say(f"{rows:,d} rows before {before:%Y-%m-%d %H:%M} UTC deleted{more}")
    return 0


def _export(args: argparse.Namespace, url: str) -> int:
    from .connection import reading
    from .export import ExportRefused, export
    from .export_payloads import export_payloads

    if args.to is None and args.payloads is None:
        raise ExportRefused("name a folder (--to) or a file (--payloads)", param="--to")
    if args.payloads is None and (args.surface or args.status):
        raise ExportRefused("--surface and --status choose among --payloads", param="--payloads")
    if args.since is not None and args.until is not None and args.until <= args.since:
        raise ExportRefused("--until is exclusive: give a day after --since", param="--until")
    span = {"since_ms": args.since, "until_ms": args.until}
    with reading(url) as connection:
        if args.to is not None:
            told = lambda one: _say(f"{one.rows:9,d} rows  {one.path}")  # noqa: E731
            if not export(connection, args.to, told=told, **span):
                _say("there are no rows in that time, so nothing was written")
        if args.payloads is not None:
            chosen = {"surface": args.surface, "status": args.status}
            rows = export_payloads(connection, args.payloads, **span, **chosen)
            _say(f"{rows:9,d} payloads  {args.payloads}")
            if not rows:
                _say("none are kept of that time: see store.payloads in docs/ledger.md")
    return 0


def _rebuild(args: argparse.Namespace, url: str) -> int:
    from .connection import writing
    from .rebuild import rebuild

    def told(rows: int) -> None:
        sys.stderr.write(f"\r{rows:,d} rows")
        sys.stderr.flush()

    with writing(url) as connection:
        rows = rebuild(connection, told)
    _say(f"\nthe rollups are those of {rows:,d} rows")
    return 0
