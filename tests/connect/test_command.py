"""``agentspec connect`` as a user types it, against a gateway before a scripted backend."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentspec import cli
from agentspec.connect.base import Client
from agentspec.connect.registry import CLIENTS
from tests.clients.backend import Backend, Fault, running
from tests.clients.serving import Served, gateway_before


@pytest.fixture(scope="module")
def backend() -> Iterator[Backend]:
    with running() as backend:
        yield backend


@pytest.fixture(scope="module")
def gateway(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with gateway_before(backend.url, tmp_path_factory.mktemp("gateway")) as served:
        yield served


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "CODEX_HOME", "LLM_USER_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_it_is_checked_by_a_real_call(
    client: Client, backend: Backend, gateway: Served, home: Path, capsys
):
    backend.begin(home)
    assert cli.main(["connect", client.name, "--url", f"{gateway.url}/v1"]) == 0
    out = capsys.readouterr().out
    assert f"checked: scripted {'called a tool' if client.tools else 'answered'}" in out
    assert backend.requests[0]["stream"] is True
    assert bool(backend.requests[0].get("tools")) == client.tools
    assert len(backend.requests) == 1 + client.images
    assert list(home.rglob("*")) == []


def test_write_and_undo(gateway: Served, home: Path, capsys):
    theirs = home / ".config" / "opencode" / "opencode.json"
    theirs.parent.mkdir(parents=True)
    theirs.write_text('{"theme":"mine"}')
    given = ["connect", "opencode", "--url", gateway.url, "--no-check"]
    assert cli.main([*given, "--write"]) == 0
    value = json.loads(theirs.read_text())
    assert value["theme"] == "mine"
    assert value["provider"]["agentspec"]["models"]["scripted"]["limit"]["context"] == 65536
    assert cli.main(["connect", "opencode", "--undo"]) == 0
    assert theirs.read_text() == '{"theme":"mine"}'
    assert "restored" in capsys.readouterr().out


def test_the_environment_is_written_as_a_file_to_read(gateway: Served, home: Path, capsys):
    given = ["connect", "anthropic-sdk", "--url", gateway.url, "--no-check", "--write"]
    assert cli.main(given) == 0
    file = home / ".config/agentspec/connect/anthropic-sdk.sh"
    assert f"export ANTHROPIC_BASE_URL={gateway.url}\n" in file.read_text()
    assert f". {file} && python" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "no-such"], "no model 'no-such' is offered; there are: scripted"),
        (["--key-env", "NO_SUCH_KEY"], "NO_SUCH_KEY"),
        (["--key-env", "sk-secret"], "the name of a variable"),
        (["--undo"], "nothing was written for codex"),
    ],
)
def test_mistakes_are_told(gateway: Served, capsys, arguments: list[str], said: str):
    assert cli.main(["connect", "codex", "--url", gateway.url, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_an_endpoint_that_is_not_there_is_told(free_port, capsys):
    url = f"http://127.0.0.1:{free_port()}"
    assert cli.main(["connect", "codex", "--url", url]) == 2
    assert "agentspec serve" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["codex", "claude-code", "opencode"])
@pytest.mark.parametrize("kind", ["503", "cut-text", "torn-call", "no-finish"])
def test_a_call_that_fails_is_told(
    backend: Backend, gateway: Served, home: Path, capsys, name: str, kind
):
    backend.begin(home, fault=Fault(kind, 1, 9))
    assert cli.main(["connect", name, "--url", gateway.url]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith("agentspec: ") and "checked" not in captured.out
