"""What an installation holds while it runs: its ports, its data folder, its children's settings."""

from __future__ import annotations

import socket
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from agentspec.cli import main
from agentspec.settings import BackendSettings, Settings, SettingsError
from agentspec.supervisor.installation import Installation, read_resolved


def installation(data: Path, *, with_engine: bool = False, **engine: object) -> Installation:
    settings = Settings(data_dir=str(data))
    settings.server.port = settings.engine.port = 0
    for name, value in engine.items():
        setattr(settings.engine, name, value)
    return Installation(settings, with_engine=with_engine, log_level="info")


def resolved(running: Installation) -> list[Path]:
    """The settings files of its children."""
    commands = [list(child.command) for child in running.children()]
    return [Path(line[line.index("--resolved") + 1]) for line in commands]


def test_a_data_folder_has_one_installation(tmp_path, capsys):
    with installation(tmp_path) as first:
        (path,) = set(resolved(first))
        before = path.read_bytes()
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert main(["gateway", "serve", "--port", "0", "--data-dir", str(tmp_path)]) == 2
        err = capsys.readouterr().err
        assert str(tmp_path) in err and "in use" in err and err.count("\n") == 1
        assert path.read_bytes() == before
        assert read_resolved(path).server.port == first.settings.server.port
        assert list(path.parent.glob("settings*")) == [path]
    assert not path.exists()
    with installation(tmp_path):
        pass


def test_a_killed_installations_settings_are_swept(tmp_path):
    left_over = tmp_path / "run" / "settings.1-00.json"
    left_over.parent.mkdir()
    left_over.write_text("{}")
    with installation(tmp_path) as running:
        assert not left_over.exists() and resolved(running)[0].exists()


def a_file(data: Path) -> str:
    data.write_text("")
    return str(data)


def below_a_file(data: Path) -> str:
    return a_file(data) + "/below"


def its_lock_a_folder(data: Path) -> str:
    (data / "run" / "lock").mkdir(parents=True)
    return str(data)


@pytest.mark.parametrize("spoil", [a_file, below_a_file, its_lock_a_folder])
def test_an_unusable_data_folder_is_one_line(spoil: Callable[[Path], str], tmp_path, capsys):
    data = spoil(tmp_path / "data")
    assert main(["gateway", "serve", "--port", "0", "--data-dir", data]) == 2
    err = capsys.readouterr().err
    assert f"the data folder {data} cannot be used: " in err
    assert "Errno" not in err and err.count("\n") == 1


@pytest.mark.parametrize("spoil", [a_file, below_a_file])
@pytest.mark.parametrize("command", ["upgrade", "check"])
def test_the_ledgers_commands_name_an_unusable_data_folder(spoil, command, tmp_path, capsys):
    data = spoil(tmp_path / "data")
    assert main(["db", command, "--data-dir", data]) == 2
    err = capsys.readouterr().err
    assert data in err and "Errno" not in err and err.count("\n") == 1


def test_an_engine_that_others_can_reach_needs_a_key(tmp_path, monkeypatch):
    with (
        pytest.raises(SettingsError, match="engine.api_key_env"),
        installation(tmp_path, with_engine=True, host="0.0.0.0"),
    ):
        pass
    monkeypatch.setenv("ENGINE_KEY", "k")
    open_to_all = installation(tmp_path, with_engine=True, host="0.0.0.0", api_key_env="ENGINE_KEY")
    with open_to_all as running:
        backend = running.settings.backends["engine"]
    assert backend.api_key_env == "ENGINE_KEY"
    assert backend.url == f"http://127.0.0.1:{running.settings.engine.port}"


@pytest.mark.skipif(not socket.has_ipv6, reason="no IPv6")
def test_an_engine_on_ipv6_is_found():
    from agentspec.settings import with_defaults

    settings = Settings(backends={"e": BackendSettings(kind="engine")})
    settings.engine.host = "::"
    assert with_defaults(settings).backends["e"].url == "http://[::1]:8001"
