"""``agentspec prices``: see, import and enter the prices of commercial models."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Protocol

from .dates import EXPECTED, is_date
from .money import half_even, nusd

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from .cost import Price
    from .prices import Dated

KINDS = {
    "input": "in",
    "cached": "cached",
    "cache_write": "cache_write",
    "cache_write_1h": "cache_write_1h",
    "output": "out",
    "reasoning": "reason",
}
"""Kinds of tokens, and what their columns are called."""


class PriceMap(Protocol):
    """A map of many prices: see ``backends.litellm_prices``."""

    @property
    def version(self) -> str: ...
    @property
    def usd_per_token(self) -> Mapping[str, Mapping[int, Mapping[str, Decimal]]]: ...


def add_parser(
    commands: argparse._SubParsersAction,
    settings: Callable[[argparse.ArgumentParser], None],
    run: Callable[[str], Callable[[argparse.Namespace], int]],
) -> None:
    """The commands. settings: adds the options of every command; run: who carries one out."""
    kinds = commands.add_parser("prices", help="prices of commercial models").add_subparsers(
        dest="what", required=True
    )
    listed = kinds.add_parser("list", help="the price versions, or the prices of one")
    listed.add_argument("version", nargs="?", type=int, help="the number of a version")
    imported = kinds.add_parser("import", help="enter litellm's price map and the published prices")
    imported.add_argument(
        "--valid-from", type=instant, metavar="DATE", help="of litellm's map; default: now"
    )
    entered = kinds.add_parser("set", help="enter a model's prices, USD per million tokens")
    entered.add_argument("model")
    for kind in KINDS:
        entered.add_argument(f"--{kind.replace('_', '-')}", type=usd, metavar="USD")
    entered.add_argument("--source", default="by hand", help="where the price comes from")
    entered.add_argument("--valid-from", type=instant, metavar="DATE", help="default: now")
    shown = kinds.add_parser("show", help="every price of a model, the one that holds last")
    shown.add_argument("model")
    gone = kinds.add_parser("withdraw", help="take out a version entered by mistake")
    gone.add_argument("version", type=int, help="its number; nothing may have been billed by it")
    for name, parser in (
        ("withdraw", gone),
        ("list", listed),
        ("import", imported),
        ("set", entered),
        ("show", shown),
    ):
        settings(parser)
        if name in ("list", "show"):
            parser.add_argument("--json", action="store_true", help="as JSON")
        parser.set_defaults(run=run(name))


def usd(text: str) -> Decimal:
    """A price. Raises ``ArgumentTypeError`` for what is none."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= 10**6:
        raise argparse.ArgumentTypeError(f"'{text}' is no price in USD per million tokens")
    if value and not half_even(nusd(value)):
        raise argparse.ArgumentTypeError(
            f"'{text}' USD per million tokens is too small: prices are kept to $0.000000001"
        )
    return value


def instant(text: str) -> int:
    """Milliseconds UTC of a date or a time, UTC where it names no other zone."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no date like 2026-07-01") from None
    ts_ms = int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)
    if not is_date(ts_ms):
        raise argparse.ArgumentTypeError(f"'{text}' is not {EXPECTED}")
    return ts_ms


def run_list(url: str, args: argparse.Namespace) -> list[str]:
    """The lines that show the versions, or one's prices."""
    from .connection import reading
    from .prices import dated, versions

    with reading(url) as connection:
        if args.version is not None:
            return _shown(dated(connection, version_id=args.version), args.json)
        found = versions(connection)
    if args.json:
        return [json.dumps([_plain(version) for version in found])]
    return [
        f"{v.id:>4}  valid from {date(v.valid_from_ms)}  {v.models:>5} models  {v.source}"
        for v in found
    ] or ["no prices yet; 'agentspec prices import' enters some"]


def run_import(url: str, args: argparse.Namespace, read_map: Callable[[], PriceMap]) -> list[str]:
    """Enter the published prices and litellm's; what is there already stays as it is."""
    return enter(url, read_map, args.valid_from)


def enter(url: str, read_map: Callable[[], PriceMap], valid_from: int | None = None) -> list[str]:
    """The same. valid_from: milliseconds UTC from which litellm's map holds; None: from now on, and
    not again where this version of it has been entered. Returns a line a source."""
    from . import published
    from .connection import writing
    from .prices import add_version

    found = read_map()
    valid_from_ms = time.time_ns() // 1_000_000 if valid_from is None else valid_from
    lines = []
    with writing(url) as connection:
        for source, valid, prices in (
            (published.SOURCE, published.VALID_FROM_MS, published.prices()),
            (f"litellm {found.version}", valid_from_ms, of_map(found)),
        ):
            if valid_from is None and _entered(connection, source):
                number = None
            else:
                number = add_version(connection, source, valid, prices)
            told = "was there already" if number is None else f"is version {number}"
            lines.append(f"{source} {told}: {len(prices)} models")
    return lines


def run_set(url: str, args: argparse.Namespace) -> list[str]:
    """Enter one model's prices as a version of their own."""
    from .connection import writing
    from .cost import Price
    from .prices import PriceError, add_version

    price = _price(vars(args))
    if not args.model.strip() or "\0" in args.model + args.source:
        raise PriceError("give the model's name, like kimi-k3")
    if price == Price():
        raise PriceError("give at least one price, like --input 3 --cached 0.3 --output 15")
    valid_from_ms = time.time_ns() // 1_000_000 if args.valid_from is None else args.valid_from
    with writing(url) as connection:
        source = f"{args.source}: {args.model}"
        number = add_version(connection, source, valid_from_ms, {args.model: [price]})
    if number is None:
        raise PriceError(
            f"{args.model} has a price from '{args.source}' valid from {date(valid_from_ms)}, "
            "which stays as it is: give another --valid-from or --source"
        )
    return [f"version {number}: {args.model} from {date(valid_from_ms)}"]


def run_withdraw(url: str, args: argparse.Namespace) -> list[str]:
    """Take a version's prices out."""
    from .connection import writing
    from .prices import withdraw

    with writing(url) as connection:
        was = withdraw(connection, args.version)
    return [f"withdrawn: version {was.id}, {was.source}, valid from {date(was.valid_from_ms)}"]


def run_show(url: str, args: argparse.Namespace) -> list[str]:
    """The lines that show every price of a model."""
    from .book import names
    from .connection import reading
    from .prices import PriceError, dated

    with reading(url) as connection:
        found = dated(connection, models=names(args.model))
    if not found:
        raise PriceError(f"no price of '{args.model}' is known")
    return _shown(found, args.json)


def of_map(found: PriceMap) -> dict[str, list[Price]]:
    """The prices of a map, as they are kept: whole nano-USD per million tokens."""

    def tier(above: int, kinds: Mapping[str, Decimal]) -> Price:
        return _price({kind: usd * 10**6 for kind, usd in kinds.items()}, above)

    return {
        model: [tier(above, kinds) for above, kinds in tiers.items()]
        for model, tiers in found.usd_per_token.items()
    }


def _price(usd_per_m: Mapping[str, Any], above_tok: int = 0) -> Price:
    """The prices of those ``KINDS`` that are given."""
    from .cost import Price, nusd_per_m

    given = {f"{c}_nusd_per_m": nusd_per_m(usd_per_m.get(kind)) for kind, c in KINDS.items()}
    return Price(**given, above_tok=above_tok)


def date(ts_ms: int) -> str:
    """2026-07-01, with the time where it is not midnight."""
    if not is_date(ts_ms):  # an earlier agentspec let them in
        return f"{ts_ms} ms (not {EXPECTED})"
    at = datetime.fromtimestamp(ts_ms / 1000, UTC)
    return f"{at:%Y-%m-%d}" if ts_ms % 86_400_000 == 0 else f"{at:%Y-%m-%d %H:%M:%S}"


def _entered(connection: Connection, source: str) -> bool:
    from .prices import versions

    return any(version.source == source for version in versions(connection))


def _plain(value: Any) -> dict[str, object]:
    return asdict(value)


def _shown(found: list[Dated], as_json: bool) -> list[str]:
    if as_json:
        return [json.dumps([_plain(one) for one in found])]
    heads = ("input", "cached", "cache write", "write 1h", "output", "reasoning")
    lines = ["".join(f"{head:>12}" for head in heads) + "  USD per million tokens"]
    for one in found:
        values = [getattr(one.price, f"{column}_nusd_per_m") for column in KINDS.values()]
        cells = "".join(f"{usd_text(value):>12}" for value in values)
        tier = f" above {one.price.above_tok:,} tokens in" if one.price.above_tok else ""
        lines.append(f"{cells}  {one.model}{tier}, {one.source}, from {date(one.valid_from_ms)}")
    return lines


def usd_text(nusd: int | None) -> str:
    return "unknown" if nusd is None else f"{Decimal(nusd).scaleb(-9).normalize():f}"
