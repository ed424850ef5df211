"""What a client needs to work with this endpoint, as values: nothing here touches a disk."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Surface = Literal["chat", "responses", "messages"]
Kind = Literal["toml", "json", "yaml", "shell"]

NO_KEY = "none"
"""Stands where a client insists on a key and the endpoint asks for none."""
MOST_OUTPUT_TOKENS = 8192


class ConnectError(ValueError):
    """The client cannot be connected; the message says why, and what to do."""


def words(*values: object) -> str:
    """A command line of these words; a ``Variable`` stays the reference that it is."""
    return " ".join(str(v) if isinstance(v, Variable) else shlex.quote(str(v)) for v in values)


@dataclass(frozen=True, slots=True)
class Variable:
    """The value of an environment variable, never written out."""

    name: str

    def __str__(self) -> str:
        return f'"${self.name}"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The endpoint and the model, and where the user's configuration lies.

    url: without ``/v1`` and trailing slash. context_tokens: None where the endpoint doesn't say.
    key_env: the variable that holds the key; None where the endpoint asks for none.
    home, config: the user's home and ``~/.config``.
    """

    url: str
    model: str
    context_tokens: int | None = None
    key_env: str | None = None
    home: Path
    config: Path

    @property
    def base_url(self) -> str:
        return f"{self.url}/v1"

    @property
    def own(self) -> Path:
        """The folder for files that nobody else writes."""
        return self.config / "agentspec" / "connect"

    @property
    def key(self) -> Variable | str:
        return Variable(self.key_env) if self.key_env else NO_KEY

    @property
    def output_tokens(self) -> int:
        """A limit for one answer that leaves room for the conversation."""
        return min(MOST_OUTPUT_TOKENS, (self.context_tokens or 4 * MOST_OUTPUT_TOKENS) // 4)


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """Settings in one file.

    settings: nested; merged into what is there, tables key by key. own: the file is ours alone and
    replaced as a whole. list_key: for a list of tables, the key by which an entry is told from the
    """

    path: Path
    kind: Kind
    settings: Any
    own: bool = False
    list_key: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """All there is to configure for one client: files, environment, and the command to type.

    notes: what else the user should know, a sentence each.
    """

    client: str
    command: str
    files: tuple[ConfigFile, ...] = ()
    env: Mapping[str, str | Variable] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def exports(self) -> str:
        """The environment as shell lines; a secret stays the name of its variable."""
        lines = (
            f"export {name}={value if isinstance(value, Variable) else shlex.quote(value)}"
            for name, value in self.env.items()
        )
        return "".join(f"{line}\n" for line in lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A coding agent or SDK that can be connected.

    surface: the protocol that it speaks to us. tools: it sends tools with every turn.
    prefers: whether a model's name suits it; another of the names offered is then taken.
    images: it can send images.
    """

    name: str
    title: str
    surface: Surface
    configure: Callable[[Target], Configuration]
    tools: bool = True
    images: bool = True
    prefers: Callable[[str], bool] = lambda name: True
    why_not: str = ""
