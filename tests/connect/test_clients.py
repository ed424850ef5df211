"""Every client's configuration: complete, without secrets, and with the model's limits."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path

import pytest

from agentspec.connect.advice import cannot
from agentspec.connect.base import Client, Target
from agentspec.connect.clients.codex import plain_tools
from agentspec.connect.merge import dumped
from agentspec.connect.registry import CLIENTS

NAMES = "codex claude-code opencode qwen-code cline aider continue kilocode pi mini-swe-agent llm"


@pytest.fixture(autouse=True)
def no_folders_of_the_user(monkeypatch: pytest.MonkeyPatch):
    for name in ("CODEX_HOME", "LLM_USER_PATH"):
        monkeypatch.delenv(name, raising=False)


def target(**more) -> Target:
    given = {"url": "http://h:1", "model": "m-1", "context_tokens": 8192}
    places = {"home": Path("/home/u"), "config": Path("/home/u/.config")}
    return Target(**(given | places | more))


def text(client: Client, at: Target) -> str:
    made = client.configure(at)
    return "".join(dumped(file) for file in made.files) + made.exports() + made.command


def test_the_clients_that_were_promised():
    assert set(CLIENTS) == {*NAMES.split(), "openai-sdk", "anthropic-sdk"}
    assert all(name == client.name for name, client in CLIENTS.items())


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_it_names_endpoint_and_model_and_stays_in_the_home(client: Client):
    at = target()
    made = client.configure(at)
    whole = text(client, at)
    assert "http://h:1" in whole and "m-1" in whole and made.client == client.name
    assert all(file.path.is_relative_to("/home/u") for file in made.files)
    wants_v1 = client.surface != "messages"
    assert ("http://h:1/v1" in whole) == wants_v1


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_a_key_is_named_and_never_written(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_KEY", "sk-secret")
    whole = text(client, target(key_env="MY_KEY"))
    assert "MY_KEY" in whole and "sk-secret" not in whole


@pytest.mark.parametrize("client", CLIENTS.values(), ids=CLIENTS)
def test_commands_survive_odd_names(client: Client):
    at = target(model="m'$(x)", home=Path("/home/u v"), config=Path("/home/u v/.config"))
    words = shlex.split(client.configure(at).command)
    known = {"m'$(x)", "agentspec/m'$(x)", "-c"}
    assert known & set(words) or any("/home/u v/" in w for w in words) or client.name == "codex"


LIMITED = ["codex", "claude-code", "opencode", "qwen-code", "aider", "continue", "kilocode", "pi"]
LIMITED += ["cline"]


@pytest.mark.parametrize("name", LIMITED)
def test_the_context_goes_to_clients_that_take_one(name: str):
    assert "54321" in text(CLIENTS[name], target(context_tokens=54321))
    assert "None" not in text(CLIENTS[name], target(context_tokens=None))


def test_cline_gets_the_key_where_it_does_not_write_it_down():
    """It writes what comes by ``-k`` into its settings, and without one reads OPENAI_API_KEY."""
    made = CLIENTS["cline"].configure(target(key_env="MY_KEY"))
    assert "apiKey" not in dumped(made.files[0]) and "-k" not in shlex.split(made.command)
    assert 'export OPENAI_API_KEY="$MY_KEY"' in made.exports()


def test_codex_gets_a_profile_of_its_own():
    (file,) = CLIENTS["codex"].configure(target(key_env="MY_KEY")).files
    value = tomllib.loads(dumped(file))
    assert file.own and file.path == Path("/home/u/.codex/agentspec.config.toml")
    provider = value["model_providers"][value["model_provider"]]
    assert provider["wire_api"] == "responses" and provider["env_key"] == "MY_KEY"


@pytest.mark.parametrize(
    ("model", "plain"),
    [
        ("smollm2-135m-instruct", True),
        ("gpt-oss-20b", True),
        ("openai/gpt-oss-120b", True),
        ("gpt-5.5", False),
        ("openai/gpt-6-mini", False),
        ("codex-mini", False),
        ("o3", False),
        ("olmo-2", True),
    ],
)
def test_names_that_change_codex_tools(model: str, plain: bool):
    assert plain_tools(model) == plain


def test_opencode_reads_the_key_when_it_asks():
    (file,) = CLIENTS["opencode"].configure(target(key_env="MY_KEY")).files
    options = json.loads(dumped(file))["provider"]["agentspec"]["options"]
    assert options == {"baseURL": "http://h:1/v1", "apiKey": "{env:MY_KEY}"}


def test_what_will_not_work_is_said(monkeypatch: pytest.MonkeyPatch):
    from agentspec.connect import advice
    from agentspec.connect.measured import Measured

    size = Measured(version="1.0", full_tokens=12000, short_tokens=6000, turns=4)
    monkeypatch.setattr(advice, "measured", lambda: {"codex": size})
    codex = CLIENTS["codex"]

    def said(context_tokens: int | None, model: str = "m-1", images: bool | None = None) -> str:
        at = target(context_tokens=context_tokens, model=model)
        return "\n".join(cannot(codex, at, images=images))

    assert "it will be refused" in said(5000)
    assert "room for 2,192 more" in said(8192)
    assert "room for 5,000 more" in said(17000)
    assert said(200_000) == said(None) == said(200_000, images=True) == ""
    assert "Images" in said(200_000, images=False)
    assert "other tools" in said(200_000, model="gpt-6")
