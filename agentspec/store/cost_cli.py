"""``agentspec cost``: what a stretch of time cost, and for what."""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from agentspec import jsontext

from .price_cli import instant

if TYPE_CHECKING:
    from agentspec.settings import Settings

    from .window import Window

_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_GROUPS = {"session": "session_id", "key": "key_id", "request": "id", "arm": "spec_arm"}
_PLAIN_GROUPS = ("model", "workload", "client", "status")


def add_parser(
    commands: argparse._SubParsersAction,
    settings: Callable[[argparse.ArgumentParser], None],
    run: Callable[[argparse.Namespace], int],
) -> None:
    """The command. settings: adds the options of every command; run: who carries it out."""
    parser = commands.add_parser("cost", help="what a stretch of time cost, and for what")
    parser.add_argument("--since", default="24h", help="24h, 7d, or a date; default: 24h")
    parser.add_argument("--until", help="a date, at most now; default: now")
    parser.add_argument(
        "--at",
        action="append",
        default=[],
        metavar="MODEL[@VERSION]",
        help="what the same tokens would have cost at a model of the price table; may be repeated",
    )
    parser.add_argument(
        "--by", choices=[*_PLAIN_GROUPS, *_GROUPS], help="divide self-hosted cost by this"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, money in nano-USD")
    settings(parser)
    parser.set_defaults(run=run)


def run(settings: Settings, args: argparse.Namespace, now_ms: int | None = None) -> list[str]:
    """The lines of the report. settings: with their defaults. Raises ``PriceError``."""
    from .connection import reading
    from .cost_json import as_json
    from .cost_report import report
    from .cost_text import lines
    from .prices import PriceError

    if args.at and not settings.pools:
        raise PriceError(
            "--at compares with machines of your own, and no backend has a pool in the settings "
            "(backends.NAME.pool; --config FILE)"
        )
    window = window_of(args.since, args.until, now_ms or time.time_ns() // 1_000_000)
    by = _GROUPS.get(args.by, args.by)
    with reading(settings.database_url) as connection:
        found = report(connection, settings, window, at=args.at, by=by)
    return [jsontext.dumps(as_json(found))] if args.json else lines(found)


def window_of(since: str, until: str | None, now_ms: int) -> Window:
    """The window that the options mean. Raises ``PriceError`` for one that has no time in it."""
    from .prices import PriceError
    from .window import Window

    try:
        # Time to come is not paid for yet.
        until_ms = now_ms if until is None else min(now_ms, instant(until))
        ago = re.fullmatch(r"(\d{1,6})([mhd])", since)
        since_ms = until_ms - int(ago[1]) * _UNITS_MS[ago[2]] if ago else instant(since)
    except argparse.ArgumentTypeError as error:
        raise PriceError(str(error)) from None
    if since_ms < 0:
        raise PriceError(f"--since {since} lies before 1970")
    if since_ms >= until_ms:
        raise PriceError("--since must be before --until and before now")
    return Window(since_ms, until_ms)
