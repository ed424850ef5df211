"""Which processes an installation has, and the sockets they share.

The gateway's and the engine's ports are bound here; the children get the sockets and the resolved
settings (with the ports that were really taken) in a file that only the user can read. The data
folder's ``run/lock`` stays exclusively flocked while the installation runs: two would drain one
journal and answer for each other's requests. The kernel drops the lock with the process.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import secrets
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from agentspec.gateway.access import may_listen
from agentspec.settings import Settings, SettingsError, reachable, secret, with_defaults
from agentspec.wire.access import guard_for

from .processes import ChildSpec, Supervisor

BACKLOG = 2048
POLL_S = 0.1


def wants_engine(settings: Settings) -> bool:
    """Whether an engine of ours belongs to it: one is configured without a URL, or nothing is."""
    return not settings.backends or any(
        backend.kind == "engine" and backend.url is None for backend in settings.backends.values()
    )


def metrics_dir(settings: Settings) -> Path | None:
    """Where several gateway workers add up their metrics; None for a single one."""
    return settings.data_path / "run" / "metrics" if settings.server.workers > 1 else None


def read_resolved(path: Path) -> Settings:
    """The settings that the supervisor wrote for its children."""
    return msgspec.json.decode(path.read_bytes(), type=Settings)


class Installation:
    """One gateway, its writer and perhaps its engine. As a context manager it holds the sockets
    and the data folder.

    Entering raises ``SettingsError`` for a port that is taken, a key's variable that isn't set, or
    a data folder that is in use or can't be used.
    """

    def __init__(
        self, settings: Settings, *, with_engine: bool, log_level: str, log_format: str = "text"
    ):
        self.settings = settings
        self._with_engine = with_engine
        self._logging = ["--log-level", log_level, "--log-format", log_format]
        self._sockets: dict[str, socket.socket] = {}
        self._lock_fd: int | None = None
        self._settings_file: Path | None = None
        self._began_s = time.monotonic()

    def __enter__(self) -> Installation:
        try:
            self._prepare()
        except BaseException:
            self._close()
            raise
        return self

    def _prepare(self) -> None:
        settings = self.settings
        may_listen(settings)
        if self._with_engine:
            guard_for(settings.engine)
        settings.data_dir = str(settings.data_path.absolute())
        run = settings.make_data_dir("run")
        self._lock(run / "lock")
        if self._with_engine:
            # The engine's port is the supervisor's business alone: any free one will do.
            settings.engine.port = self._bind(
                "engine", settings.engine.host, settings.engine.port, or_any=True
            )
        settings.server.port = self._bind("gateway", settings.server.host, settings.server.port)
        with_defaults(settings)
        for backend in settings.backends.values():
            secret(backend.api_key_env)
        try:
            self._settings_file = self._write_settings(run)
            self._empty_metrics()
        except OSError as error:
            raise settings.unusable(error) from None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._close()

    def _close(self) -> None:
        for listener in self._sockets.values():
            listener.close()
        if self._settings_file is not None:
            self._settings_file.unlink(missing_ok=True)
        if self._lock_fd is not None:
            os.close(self._lock_fd)
            self._lock_fd = None

    def _bind(self, name: str, host: str, port: int, *, or_any: bool = False) -> int:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
        except OSError as error:
            if or_any and port:
                return self._bind(name, host, 0)
            raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from None
        self._sockets[name] = listener
        return listener.getsockname()[1]

    def _lock(self, path: Path) -> None:
        """Take the data folder. The file stays where it is: deleting it would let two hold it."""
        try:
            self._lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(
                f"the data folder {self.settings.data_dir} is in use by another agentspec: stop "
                "that one, or choose another with --data-dir"
            ) from None
        except OSError as error:
            raise self.settings.unusable(error) from None

    def _write_settings(self, run: Path) -> Path:
        """The settings for the children, in a file of this installation's own."""
        for left_over in run.glob("settings*.json"):
            left_over.unlink()
        path = run / f"settings.{os.getpid()}-{secrets.token_hex(4)}.json"
        path.touch(mode=0o600, exist_ok=False)
        path.write_bytes(msgspec.json.encode(self.settings))
        return path

    def _empty_metrics(self) -> None:
        shared = metrics_dir(self.settings)
        if shared is not None:
            shared.mkdir(exist_ok=True)
            for left_over in shared.glob("*.db"):
                left_over.unlink()

    def children(self) -> list[ChildSpec]:
        """Every process. The writer is stopped last, so that it drains what the others wrote."""
        specs = [self._child("writer", ["db", "writer"], stage=0)]
        if self._with_engine:
            specs.append(self._child("engine", ["engine", "serve"], "engine", stage=1))
        workers = self.settings.server.workers
        for number in range(workers):
            name = "gateway" if workers == 1 else f"gateway{number}"
            specs.append(self._child(name, ["gateway", "worker"], "gateway", stage=2))
        return specs

    def _child(
        self, name: str, command: list[str], listener: str | None = None, *, stage: int
    ) -> ChildSpec:
        assert self._settings_file is not None, "children() is called inside the context"
        line = [sys.executable, "-m", "agentspec", *command]
        line += ["--resolved", str(self._settings_file), *self._logging]
        if listener is None:
            return ChildSpec(name, line, stage=stage)
        fd = self._sockets[listener].fileno()
        return ChildSpec(name, [*line, "--fd", str(fd)], (fd,), stage=stage)

    async def run(self, say: Callable[[str], None]) -> None:
        """Keep every process running until SIGTERM or SIGINT. say: told what happens, by line.

        Raises ``ChildRefused`` when one cannot run as configured.
        """
        supervisor = Supervisor(self.children(), say, self._forget_metrics)
        await supervisor.run(meanwhile=lambda: asyncio.ensure_future(self._announce(say)))

    async def _announce(self, say: Callable[[str], None]) -> None:
        """Say when ``/ready`` answers 200 for the first time."""
        server = self.settings.server
        while not await _answers_ready(reachable(server.host), server.port):
            await asyncio.sleep(POLL_S)
        shown = f"[{server.host}]" if ":" in server.host else server.host
        took_s = time.monotonic() - self._began_s
        say(f"ready on http://{shown}:{server.port} after {took_s:.1f} s")

    def _forget_metrics(self, pid: int) -> None:
        shared = metrics_dir(self.settings)
        if shared is not None:
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(pid, str(shared))


async def _answers_ready(host: str, port: int) -> bool:
    """Whether ``GET /ready`` is answered with 200 within a few seconds."""
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(5):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(b"GET /ready HTTP/1.0\r\nhost: localhost\r\n\r\n")
            status = await reader.readline()
            return status.split()[1:2] == [b"200"]
    except (OSError, TimeoutError):
        return False
    finally:
        if writer is not None:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
