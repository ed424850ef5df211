"""``agentspec connect``: its arguments. What they do is in ``command.py``, loaded when asked."""

from __future__ import annotations

import argparse
from typing import Any

from .registry import CLIENTS

DEFAULT_URL = "http://127.0.0.1:8000"


def add_parser(subparsers: Any) -> None:
    """Add ``connect``; it sets ``run`` (called with the parsed arguments)."""
    parser = subparsers.add_parser("connect", help="configure a coding agent for this endpoint")
    parser.add_argument("client", choices=list(CLIENTS), metavar="CLIENT", help=", ".join(CLIENTS))
    parser.add_argument("--url", default=DEFAULT_URL, help=f"the endpoint (default {DEFAULT_URL})")
    parser.add_argument("--model", help="a name from /v1/models (default: the first that suits)")
    parser.add_argument("--key-env", metavar="NAME", help="variable that holds the endpoint's key")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="install it; keeps a backup")
    how.add_argument("--undo", action="store_true", help="put back what was there before --write")
    parser.add_argument("--no-check", action="store_true", help="make no real call")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from .command import run as connect

    return connect(args)
