"""Commands, and what they say when the user can mend something: one line, exit status 2."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from agentspec import __version__
from agentspec.cli import main
from agentspec.settings import load


def run(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    status = main(argv)
    out, err = capsys.readouterr()
    return status, out, err


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--version"])
    assert stop.value.code == 0
    assert capsys.readouterr().out == f"agentspec {__version__}\n"


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["db"], ["serve", "--port", "x"]])
def test_misspelt_commands(argv, capsys):
    with pytest.raises(SystemExit) as stop:
        main(argv)
    assert stop.value.code == 2
    assert "usage: agentspec" in capsys.readouterr().err


def test_help_hides_what_only_the_supervisor_calls(capsys):
    for command in ("gateway", "db", "engine"):
        with pytest.raises(SystemExit):
            main([command, "--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert {"serve", "upgrade", "check"} <= set(listed)
    assert not {"worker", "writer", "--fd", "--resolved"} & set(listed)


@pytest.mark.parametrize(
    ("toml", "named"),
    [
        ("[server]\nprot = 1", "prot"),
        ("[server]\nport = 70000", "server.port"),
        ("[server]\nport = 'x'", "server.port"),
        ("[server\n", "line 1"),
        ("[backends.b]\nkind = 'openai'", "backends.b.url"),
        ("[models.m]\nbackends = ['nobody']", "nobody"),
        ("[server]\nhost = '0.0.0.0'", "server.api_key_env"),
        ("[engine]\nthreads = -1", "engine.threads"),
        ("[engine]\nmax_draft_tokens = -1", "engine.max_draft_tokens"),
        ("[engine]\nmodel = ''", "engine.model"),
        ("[engine]\nmodel = 'two words'", "engine.model"),
        ("[engine]\nkv_tokens = 8191", "engine.kv_tokens (8191)"),
        ("[engine]\nkv_tokens = 8191", "engine.context_tokens (8192)"),
        ("[engine]\npage_tokens = 10000", "engine.page_tokens"),
        ("[engine]\ndtype = 'int8'\npage_tokens = 32", "engine.page_tokens must be 16"),
        ("[models.'']\nbackends = ['engine']", "models"),
        ("[models.m]\nbackends = ['engine']\naliases = ['a b']", "models.m.aliases"),
        ("[models.m]\nbackends = ['engine']\nupstream_name = ' '", "models.m.upstream_name"),
        ("[models.m]\nbackends = ['b']\nprice.input_usd_per_m = -1", "price.input_usd_per_m"),
        ("[backends.b]\nkind = 'openai'\nurl = 'localhost:30000'", "backends.b.url"),
        ("[backends.b]\nkind = 'openai'\nurl = 'ftp://h/v1'", "backends.b.url"),
        ("[backends.b]\nkind = 'openai'\nurl = 'http://'", "backends.b.url"),
        ("[backends.b]\nkind = 'openai'\nurl = 'http://h:x'", "backends.b.url"),
        ("[server]\napi_key_env = 'NOT_SET_ANYWHERE'", "NOT_SET_ANYWHERE"),
        (
            "[backends.b]\nkind = 'openai'\nurl = 'http://h'\napi_key_env = 'NOT_SET_EITHER'\n"
            "[models.m]\nbackends = ['b']",
            "NOT_SET_EITHER",
        ),
    ],
)
def test_bad_settings_are_named(toml, named, tmp_path, capsys):
    config = tmp_path / "agentspec.toml"
    config.write_text(toml)
    options = ["--config", str(config), "--data-dir", str(tmp_path / "data")]
    if "port =" not in toml and "prot =" not in toml:
        options += ["--port", "0"]
    status, _, err = run(capsys, "gateway", "serve", *options)
    assert status == 2
    assert named in err and err.startswith("agentspec: ") and err.count("\n") == 1


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["gateway", "serve", "--config", "/nowhere/x.toml"], "/nowhere/x.toml"),
        (["gateway", "serve", "--port", "70000"], "70000"),
        (["gateway", "serve", "--host", "0.0.0.0"], "server.api_key_env"),
        (["engine", "serve", "--host", "0.0.0.0"], "engine.api_key_env"),
        (["model", "get", "--file", "/nowhere/model.gguf"], "/nowhere/model.gguf"),
    ],
)
def test_bad_arguments_are_named(argv, named, capsys):
    status, _, err = run(capsys, *argv)
    assert status == 2
    assert named in err and err.count("\n") == 1


def test_a_port_that_is_taken(tmp_path, capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        argv = ["gateway", "serve", "--port", port, "--data-dir", str(tmp_path)]
        status, _, err = run(capsys, *argv)
    assert status == 2
    assert f"127.0.0.1:{port}" in err and err.count("\n") == 1


def test_the_database_is_made_and_checked(tmp_path, capsys):
    options = ["--data-dir", str(tmp_path / "new")]
    status, _, err = run(capsys, "db", "check", *options)
    assert status == 2 and str(tmp_path / "new" / "agentspec.db") in err and err.count("\n") == 1
    assert not (tmp_path / "new").exists(), "checking makes nothing"
    status, out, _ = run(capsys, "db", "upgrade", *options)
    assert status == 0 and "revision" in out
    assert run(capsys, "db", "check", *options)[:2] == (0, out)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["agentspec.db"]


def test_an_unreachable_database_is_one_line(tmp_path, capsys):
    config = tmp_path / "agentspec.toml"
    config.write_text("[store]\nurl = 'sqlite:////nowhere/at/all.db'")
    status, _, err = run(capsys, "db", "check", "--config", str(config))
    assert status == 2 and "Traceback" not in err and "sqlalche.me" not in err


def test_the_command_line_loads_no_room_before_it_is_asked():
    heavy = ["torch", "litellm", "fastapi", "sqlalchemy", "aiohttp", "uvicorn", "jinja2"]
    code = (
        "import sys; from agentspec.cli import build_parser; build_parser();"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_host_and_port_mean_the_process_that_is_started(tmp_path):
    from agentspec.cli import _settings, build_parser

    config = tmp_path / "agentspec.toml"
    config.write_text("[server]\nport = 1\n[engine]\nport = 2\n")
    argv = ["--config", str(config), "--port", "3", "--host", "127.0.0.9"]
    front = _settings(build_parser().parse_args(["gateway", "serve", *argv]))
    engine = _settings(build_parser().parse_args(["engine", "serve", *argv]), engine=True)
    assert (front.server.port, front.server.host, front.engine.port) == (3, "127.0.0.9", 2)
    assert (engine.engine.port, engine.engine.host, engine.server.port) == (3, "127.0.0.9", 1)
    assert load(config).server.port == 1
