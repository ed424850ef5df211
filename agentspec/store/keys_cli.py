"""``agentspec keys``: make, list, limit, replace and revoke API keys; projects.

A secret is printed once, on standard output and alone, so that it can be piped where it is needed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from .budgets import BUDGETS, KINDS
from .money import half_even, nusd

if TYPE_CHECKING:
    from pathlib import Path

    from .keys import KeyStore

_UNITS_MS = {"m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LIMITS = {
    "rpm": "requests a minute",
    "tpm": "tokens a minute, in and out",
    "concurrency": "requests at once",
    "usd_day": "dollars a day (UTC)",
    "usd_month": "dollars a month (UTC)",
    "usd_total": "dollars in all",
}
NONE = "none"
MAKING = ("create", "project create")
"""Commands that make the ledger where there is none: keys come before the first start."""


def add_parser(
    commands: argparse._SubParsersAction,
    settings: Callable[[argparse.ArgumentParser], None],
    run: Callable[[str], Callable[[argparse.Namespace], int]],
) -> None:
    """The commands. settings: adds the options of every command; run: who carries one out."""
    keys = commands.add_parser("keys", help="API keys, their limits and budgets").add_subparsers(
        dest="what", required=True
    )
    parsers = _key_parsers(keys) | _project_parsers(keys)
    for name, parser in parsers.items():
        settings(parser)
        if name in ("list", "show", "project list"):
            parser.add_argument("--json", action="store_true", help="as JSON")
        parser.set_defaults(run=run(name))


def _key_parsers(keys: argparse._SubParsersAction) -> dict[str, argparse.ArgumentParser]:
    listed = keys.add_parser("list", help="all keys")
    show = keys.add_parser("show", help="one key, its limits and what is used of them")
    revoke = keys.add_parser("revoke", help="end a key for good; gateways know within seconds")
    rotate = keys.add_parser("rotate", help="a new secret for a key, shown this once")
    rotate.add_argument(
        "--grace", type=_span, default=0, metavar="1h", help="how long the old one is still good"
    )
    limit = keys.add_parser("limit", help="set limits of a key; 'none' takes one away")
    _add_limits(limit)
    change = keys.add_parser("set", help="change what a key may do")
    change.add_argument("--models", type=_names_or_all, metavar="A,B", help="only these, or 'all'")
    change.add_argument("--cache-scope", choices=["key", "project"], help="as for create")
    change.add_argument("--operator", choices=["yes", "no"], help="may open the dashboard")
    found = {"show": show, "revoke": revoke, "rotate": rotate, "limit": limit, "set": change}
    for parser in found.values():
        parser.add_argument("key", help="its id, or its name where only one has it")
    return {"create": _create_parser(keys), "list": listed} | found


def _create_parser(keys: argparse._SubParsersAction) -> argparse.ArgumentParser:
    create = keys.add_parser("create", help="make a key; its secret is shown this once")
    create.add_argument("name", help="what it is for, as lists show it")
    create.add_argument("--project", metavar="NAME", help="the project whose limits it shares")
    create.add_argument("--models", type=_names, metavar="A,B", help="only these; default: all")
    create.add_argument("--expires", type=_span, metavar="30d", help="in so many m, h or d")
    create.add_argument(
        "--cache-scope",
        choices=["key", "project"],
        default="key",
        help="whose prompts it may share a prefix cache with: nobody's, or its project's keys'",
    )
    create.add_argument("--operator", action="store_true", help="may open the dashboard")
    _add_limits(create)
    return create


def _project_parsers(keys: argparse._SubParsersAction) -> dict[str, argparse.ArgumentParser]:
    project = keys.add_parser("project", help="groups of keys").add_subparsers(
        dest="project_what", required=True
    )
    made = project.add_parser("create", help="make a project")
    listed = project.add_parser("list", help="all projects")
    limit = project.add_parser("limit", help="set limits that all its keys share")
    for parser in (made, limit):
        parser.add_argument("project", help="its name")
        _add_limits(parser)
    return {"project create": made, "project list": listed, "project limit": limit}


def run(name: str, database_url: str, folder: Path, args: argparse.Namespace) -> int:
    """Carry a command out. folder: the data folder, which is there for those of ``MAKING``.

    Raises ``StoreError``, ``SQLAlchemyError``.
    """
    from .database import connect
    from .keys import KeyStore
    from .keys_snapshot import mark
    from .migrate import require_current, require_file, upgrade_empty

    if name not in MAKING:
        require_file(database_url)  # SQLite would make an empty one
    else:
        upgrade_empty(database_url)
    store = KeyStore(connect(database_url), _now_ms)
    try:
        require_current(store.engine)
        _COMMANDS[name](store, args)
        if name == "create":
            mark(folder)
    finally:
        store.close()
    return 0


def _create(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys import NewKey, printable

    expires_ms = None if args.expires is None else _now_ms() + args.expires
    key, secret = store.create(
        NewKey(
            name=args.name,
            project=args.project,
            models=args.models,
            cache_scope=args.cache_scope,
            expires_ms=expires_ms,
            operator=args.operator,
        ),
        _amounts(args),
    )
    _once(f"key {key.id} ({printable(key.name)})", secret)


def _rotate(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys import printable

    key = store.get(args.key)
    _once(f"new secret of key {key.id} ({printable(key.name)})", store.rotate(key.id, args.grace))


def _revoke(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys import printable

    key = store.revoke(args.key)
    _print(f"key {key.id} ({printable(key.name)}) is revoked")


def _limit(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys import key_owner

    store.set_limits(key_owner(store.get(args.key).id), _wanted(args))
    _show(store, args)


def _set(store: KeyStore, args: argparse.Namespace) -> None:
    operator = None if args.operator is None else args.operator == "yes"
    key = store.change(
        args.key, models=args.models, cache_scope=args.cache_scope, operator=operator
    )
    args.key = key.id
    _show(store, args)


def _list(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys_report import overview

    found = overview(store.engine, _now_ms())
    if args.json:
        return _print(json.dumps([key.as_json() for key in found.keys]))
    for key in found.keys:
        _print(key.line())
    if not found.keys:
        sys.stderr.write("no key yet; 'agentspec keys create NAME' makes one\n")


def _show(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys_report import overview

    id = store.get(args.key).id
    found = next(key for key in overview(store.engine, _now_ms()).keys if key.record.id == id)
    if getattr(args, "json", False):
        return _print(json.dumps(found.as_json()))
    _print(found.text())


def _project_create(store: KeyStore, args: argparse.Namespace) -> None:
    store.create_project(args.project, _amounts(args))
    _print(f"project {args.project}")


def _project_limit(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys import project_owner

    store.require_project(args.project)
    store.set_limits(project_owner(args.project), _wanted(args))


def _project_list(store: KeyStore, args: argparse.Namespace) -> None:
    from .keys_report import overview

    found = overview(store.engine, _now_ms()).projects
    if args.json:
        return _print(json.dumps([project.as_json() for project in found]))
    for project in found:
        _print(project.text())


_COMMANDS: dict[str, Callable[[KeyStore, argparse.Namespace], None]] = {
    "create": _create,
    "list": _list,
    "show": _show,
    "revoke": _revoke,
    "rotate": _rotate,
    "limit": _limit,
    "set": _set,
    "project create": _project_create,
    "project list": _project_list,
    "project limit": _project_limit,
}


def _add_limits(parser: argparse.ArgumentParser) -> None:
    for kind in KINDS:
        convert = _dollars if kind in BUDGETS else _count
        name = f"--{kind.replace('_', '-')}"
        parser.add_argument(name, type=convert, metavar="N", help=_LIMITS[kind])


def _amounts(args: argparse.Namespace) -> dict[str, int | None]:
    """The limits that were given, by kind; None for 'none'."""
    given = {kind: getattr(args, kind) for kind in KINDS}
    return {kind: None if v == NONE else v for kind, v in given.items() if v is not None}


def _wanted(args: argparse.Namespace) -> dict[str, int | None]:
    from .keys import KeyRefused

    amounts = _amounts(args)
    if not amounts:
        options = ", ".join(f"--{kind.replace('_', '-')}" for kind in KINDS)
        raise KeyRefused(f"name a limit to set: {options}", param="limit")
    return amounts


def _count(text: str) -> int | str:
    if text == NONE:
        return NONE
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number nor '{NONE}'")
    return int(text)


def _dollars(text: str) -> int | str:
    """Nano-USD of dollars."""
    if text == NONE:
        return NONE
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("NaN")
    if not value.is_finite() or not 0 <= value <= 10**9:
        raise argparse.ArgumentTypeError(f"'{text}' is neither an amount of dollars nor '{NONE}'")
    exact = nusd(value)
    if 0 < exact < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is less than the least, 0.000000001 dollars")
    return half_even(exact)


def _span(text: str) -> int:
    """Milliseconds of 90m, 24h or 30d."""
    found = re.fullmatch(r"(\d{1,6})([mhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"'{text}' is no span of time like 90m, 24h or 30d")
    return int(found.group(1)) * _UNITS_MS[found.group(2)]


def _names(text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise argparse.ArgumentTypeError("name at least one model")
    return names


def _names_or_all(text: str) -> list[str]:
    """No names for 'all'."""
    return [] if text == "all" else _names(text)


def _once(what: str, secret: str) -> None:
    sys.stderr.write(f"{what}; keep it now, it is not shown again:\n")
    sys.stderr.flush()
    _print(secret)


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
