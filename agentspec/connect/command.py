"""What ``agentspec connect`` does, and tells on standard output."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from agentspec import resources, settings

from .advice import cannot
from .base import Client, Configuration, ConnectError, Target, words
from .endpoint import Endpoint, Offered
from .install import environment_file, undo, write
from .merge import dumped
from .registry import CLIENTS


def run(args: argparse.Namespace) -> int:
    """Raises ``ConnectError`` or ``SettingsError`` for what the user can mend."""
    places = _Places.of_user()
    client = CLIENTS[args.client]
    if args.undo:
        for one in undo(client.name, places.state):
            _say(f"restored {one.path}" + (f" (as it was: {one.kept})" if one.kept else ""))
        return 0
    if args.key_env and not args.key_env.isidentifier():
        raise ConnectError(f"--key-env takes the name of a variable, not '{args.key_env}'")
    endpoint = Endpoint(_bare(args.url), settings.secret(args.key_env))
    target = _target(client, args, endpoint, places)
    configuration = _shell_ready(client.configure(target), target, args.write)
    if args.write:
        _say(*(f"wrote {path}" for path in write(configuration, places.state)))
        _say(f"undo: agentspec connect {client.name} --undo", "")
    else:
        sys.stdout.write(fragments(configuration))
    images = None if args.no_check else _checked(client, target, endpoint)
    _say("type:", f"  {configuration.command}")
    for line in (*configuration.notes, *cannot(client, target, images=images)):
        _say(f"note: {line}")
    return 0


def fragments(configuration: Configuration) -> str:
    """The files and the environment, as they would be written."""
    parts = []
    for file in configuration.files:
        how = "a file of its own" if file.own else "merged into what is there"
        parts.append(f"# {file.path} ({how})\n{dumped(file)}\n")
    if configuration.env:
        parts.append(f"# environment\n{configuration.exports()}\n")
    return "".join(parts)


@dataclass(frozen=True, slots=True)
class _Places:
    home: Path
    config: Path
    state: Path

    @classmethod
    def of_user(cls) -> _Places:
        home = Path.home()
        state = resources.user_dir("XDG_STATE_HOME", ".local/state")
        config = resources.user_dir("XDG_CONFIG_HOME", ".config")
        return cls(home, config, state / "agentspec" / "connect")


def _bare(url: str) -> str:
    """Without trailing slash and ``/v1``, which some clients want and others don't."""
    if "://" not in url:
        raise ConnectError(f"--url must be like http://HOST:PORT, not '{url}'")
    return url.rstrip("/").removesuffix("/v1")


def _target(
    client: Client, args: argparse.Namespace, endpoint: Endpoint, places: _Places
) -> Target:
    offered = endpoint.models()
    model = _model(client, args.model, offered)
    return Target(
        url=endpoint.url,
        model=model.name,
        context_tokens=model.context_tokens,
        key_env=args.key_env,
        home=places.home,
        config=places.config,
    )


def _model(client: Client, wanted: str | None, offered: list[Offered]) -> Offered:
    """Raises ``ConnectError``."""
    names = [model.name for model in offered]
    if not names:
        raise ConnectError("the endpoint offers no model")
    if wanted is None:
        return next((model for model in offered if client.prefers(model.name)), offered[0])
    if wanted not in names:
        raise ConnectError(f"no model '{wanted}' is offered; there are: {', '.join(names)}")
    return offered[names.index(wanted)]


def _shell_ready(configuration: Configuration, target: Target, write_it: bool) -> Configuration:
    """With ``--write`` the environment goes into a file that the command reads first."""
    file = environment_file(configuration, target.own) if write_it else None
    if file is None:
        return configuration
    command = f"{words('.', file.path)} && {configuration.command}"
    return replace(configuration, files=(*configuration.files, file), command=command)


def _checked(client: Client, target: Target, endpoint: Endpoint) -> bool | None:
    """Make the real call; returns whether the model takes images, where the client can send any."""
    done = endpoint.check(client, target.model)
    what = "called a tool" if done.called else "answered"
    protocol = {"chat": "chat completions", "responses": "Responses", "messages": "Messages"}
    _say(
        f"checked: {target.model} {what} over {protocol[client.surface]}, streamed, "
        f"in {done.seconds:.1f} s"
    )
    return endpoint.sees_images(target.model) if client.images else None


def _say(*lines: str) -> None:
    sys.stdout.write("".join(f"{line}\n" for line in lines))
