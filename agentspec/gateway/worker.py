"""One gateway worker: the application on a socket, until SIGTERM."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

import uvicorn
from fastapi import APIRouter

from agentspec.pauses import ShortPauses
from agentspec.settings import Settings

from .app import create_app

GRACE_S = 10


def run(
    settings: Settings,
    fd: int,
    *,
    mounts: Sequence[APIRouter] = (),
    metrics_dir: Path | None = None,
) -> None:
    """Serve on the listening socket ``fd`` until SIGTERM, then finish what runs (``GRACE_S``).

    metrics_dir: where workers of one installation add up their metrics. Raises ``SettingsError``.
    """
    app = create_app(settings, mounts=mounts, metrics_dir=metrics_dir)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    config.load()
    with ShortPauses():
        uvicorn.Server(config).run(sockets=[socket.socket(fileno=fd)])
