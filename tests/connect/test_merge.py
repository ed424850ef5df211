"""Settings merged into a user's files: theirs stay, comments too; read back by other parsers."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
import yaml

from agentspec.connect.base import ConfigFile, ConnectError
from agentspec.connect.merge import merged

TOML = """# mine
model = "theirs"   # keep me

[model_providers.other]
name = "other"

[mcp_servers.x]
command = "x"
"""


def toml(settings: dict, **more) -> ConfigFile:
    return ConfigFile(Path("c.toml"), "toml", settings, **more)


def test_toml_keeps_comments_order_and_other_tables():
    new = merged(toml({"model_providers": {"agentspec": {"name": "a", "n": 1}}}), TOML)
    value = tomllib.loads(new)
    assert value["model_providers"] == {
        "other": {"name": "other"},
        "agentspec": {"name": "a", "n": 1},
    }
    assert value["model"] == "theirs" and value["mcp_servers"] == {"x": {"command": "x"}}
    assert "# mine" in new and "# keep me" in new


def test_json_keeps_other_keys_their_order_and_the_indent():
    old = '{\n    "z": 1,\n    "provider": {"other": {"a": [1, 2]}},\n    "a": "ü"\n}'
    file = ConfigFile(Path("c.json"), "json", {"provider": {"agentspec": {"b": True}}})
    new = merged(file, old)
    value = json.loads(new)
    assert list(value) == ["z", "provider", "a"]
    assert value["provider"] == {"other": {"a": [1, 2]}, "agentspec": {"b": True}}
    assert new.startswith('{\n    "z"') and "ü" in new and not new.endswith("\n")


def test_json_lists_are_merged_by_key():
    old = json.dumps({"p": {"openai": [{"id": "theirs"}, {"id": "m", "old": 1}]}})
    file = ConfigFile(
        Path("c.json"), "json", {"p": {"openai": [{"id": "m", "new": 2}]}}, list_key="id"
    )
    assert json.loads(merged(file, old)) == {
        "p": {"openai": [{"id": "theirs"}, {"id": "m", "new": 2}]}
    }


@pytest.mark.parametrize("old", ['{\n  // mine\n  "a": 1\n}', '{"a": 1,}'])
def test_json_with_comments_is_refused_with_what_to_add(old: str):
    file = ConfigFile(Path("c.json"), "json", {"provider": {"agentspec": {}}})
    with pytest.raises(ConnectError, match=r"(?s)c\.json.*by hand.*agentspec"):
        merged(file, old)


def listed(*entries: dict) -> ConfigFile:
    return ConfigFile(Path("c.yaml"), "yaml", list(entries), list_key="model_id")


def test_yaml_lists_grow_and_keep_comments():
    old = "# mine\n- model_id: theirs  # keep me\n  model_name: t"
    new = merged(listed({"model_id": "ours", "n": 1}), old)
    assert yaml.safe_load(new) == [
        {"model_id": "theirs", "model_name": "t"},
        {"model_id": "ours", "n": 1},
    ]
    assert new.startswith(old)


@pytest.mark.parametrize("old", ["- {model_id: ours, old: 1}\n", "[{model_id: ours}]", "# only\n"])
def test_yaml_entries_of_ours_are_replaced(old: str):
    new = merged(listed({"model_id": "ours", "n": 1}), old)
    assert yaml.safe_load(new) == [{"model_id": "ours", "n": 1}]


@pytest.mark.parametrize(
    ("file", "old"),
    [
        (toml({"a": 1}), "not toml ="),
        (toml({"a": {"b": 1}}), "a = 3\n"),
        (ConfigFile(Path("c.toml"), "json", {"a": 1}), "[1]"),
        (listed({"model_id": "m"}), "a: 1\n"),
    ],
)
def test_files_of_another_shape_are_refused_by_name(file: ConfigFile, old: str):
    with pytest.raises(ConnectError, match=file.path.name):
        merged(file, old)


def test_a_file_of_our_own_is_replaced():
    assert tomllib.loads(merged(toml({"a": 1}, own=True), "b = 2\n")) == {"a": 1}
