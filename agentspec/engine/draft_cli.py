"""``agentspec engine draft load|drop|list``: drafts of an engine that runs."""

from __future__ import annotations

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentspec.settings import Settings, SettingsError, reachable, secret

_ANSWER_S = 120.0
ReadSettings = Callable[[argparse.Namespace], Settings]


def add_parser(
    kinds: argparse._SubParsersAction,
    add_settings: Callable[[argparse.ArgumentParser], None],
    read_settings: ReadSettings,
) -> None:
    """The command ``draft`` of ``agentspec engine``."""
    parser = kinds.add_parser("draft", help="load and drop drafts of a running engine")
    whats = parser.add_subparsers(dest="draft_what", required=True)
    load = whats.add_parser("load", help="take a draft's folder in, without a restart")
    load.add_argument("path", type=Path, help="a draft's folder, or a smaller model")
    load.add_argument("--name", help="of the source; the draft's method if left out")
    load.add_argument("--head-rows", type=int, metavar="N", help="draft the first N ids only")
    load.add_argument("--bits", type=int, choices=[8, 4], default=4, help="a weight (block drafts)")
    drop = whats.add_parser("drop", help="do without a draft from now on")
    drop.add_argument("name")
    shown = whats.add_parser("list", help="show what is loaded")
    for one in (load, drop, shown):
        one.add_argument("--url", help="of the engine, if it isn't where the settings say")
        add_settings(one)
        one.set_defaults(run=lambda args: run(args, read_settings(args)))


def run(args: argparse.Namespace, settings: Settings) -> int:
    """Ask the engine; prints its answer. Raises ``SettingsError`` with the engine's refusal."""
    host = reachable(settings.engine.host)
    shown = f"[{host}]" if ":" in host else host
    url = (args.url or f"http://{shown}:{settings.engine.port}").rstrip("/")
    key = secret(settings.engine.api_key_env)
    if args.draft_what == "load":
        asked = {name: getattr(args, name) for name in ("name", "head_rows", "bits")}
        body = {"path": str(args.path.resolve()), **asked}
        cards = [_ask(f"{url}/drafts", key, "POST", body)]
    elif args.draft_what == "drop":
        cards = [_ask(f"{url}/drafts/{quote(args.name, safe='')}", key, "DELETE")]
    else:
        cards = _ask(f"{url}/drafts", key, "GET")["data"]
    for card in cards:
        line = f"{card['name']}\t{card['path']}\ttaps {card['taps']}"
        sys.stdout.write(("dropped " if args.draft_what == "drop" else "") + line + "\n")
    return 0


def _ask(url: str, key: str | None, method: str, body: Any = None) -> Any:
    headers = {"content-type": "application/json"}
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=_ANSWER_S) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise SettingsError(f"{url}: {_message(error)}") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        raise SettingsError(f"no engine answers at {url} ({reason}); name it by --url") from None


def _message(error: urllib.error.HTTPError) -> str:
    text = error.read(10_000).decode("utf-8", "replace")
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"{error.code} {text[:200] or error.reason}"
