"""A file's new text: settings merged into what is there. Nothing here touches a disk."""

from __future__ import annotations

import json
import re
from typing import Any

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from .base import ConfigFile, ConnectError

_INDENT = re.compile(r"^[ \t]+", re.MULTILINE)


def merged(file: ConfigFile, old: str | None) -> str:
    """The text that the file should have. old: what it holds; None or blank: nothing.

    Settings that are not ours stay as they are; TOML and YAML keep their comments and layout.
    Raises ``ConnectError`` for a file that cannot be read, or would lose comments.
    """
    if file.kind == "shell":
        return file.settings
    if file.own or old is None or not old.strip():
        return dumped(file)
    try:
        return {"toml": _toml, "json": _json, "yaml": _yaml}[file.kind](file, old)
    except (ValueError, TypeError, TOMLKitError, yaml.YAMLError) as error:
        if isinstance(error, ConnectError):
            raise
        raise ConnectError(f"{file.path} cannot be read: {error}") from None


def dumped(file: ConfigFile) -> str:
    """The settings alone, as the file spells them."""
    if file.kind == "shell":
        return file.settings
    if file.kind == "toml":
        return tomlkit.dumps(file.settings)
    if file.kind == "json":
        return json.dumps(file.settings, indent=2, ensure_ascii=False) + "\n"
    return yaml.safe_dump(file.settings, sort_keys=False, allow_unicode=True)


def _toml(file: ConfigFile, old: str) -> str:
    document = tomlkit.parse(old)
    _update(document, file.settings, file, str(file.path))
    return tomlkit.dumps(document)


def _json(file: ConfigFile, old: str) -> str:
    try:
        value = json.loads(old)
    except ValueError as error:
        raise ConnectError(
            f"{file.path} is not plain JSON ({error}); rewriting it would lose its comments. "
            f"Please add this by hand:\n{dumped(file)}"
        ) from None
    _update(value, file.settings, file, str(file.path))
    return spelled_json(value, old)


def spelled_json(value: Any, like: str) -> str:
    """JSON with the indent and the end of another text."""
    found = _INDENT.search(like)
    text = json.dumps(value, indent=found.group() if found else 2, ensure_ascii=False)
    return text + ("\n" if like.endswith("\n") else "")


def _yaml(file: ConfigFile, old: str) -> str:
    """A list of tables grows at its end. An entry of ours that is there already is left out first,
    which costs the comments."""
    value = yaml.safe_load(old)
    if value is None:
        return old + ("" if old.endswith("\n") else "\n") + dumped(file)
    if not isinstance(value, list):
        raise ConnectError(f"{file.path} should hold a list")
    assert file.list_key is not None
    kept = _others(value, file.settings, file.list_key)
    block_style = re.search(r"^- ", old, re.MULTILINE)
    if len(kept) < len(value) or (value and not block_style):
        old = yaml.safe_dump(kept, sort_keys=False, allow_unicode=True) if kept else ""
    return old + ("" if not old or old.endswith("\n") else "\n") + dumped(file)


def _others(entries: list[Any], ours: list[dict[str, Any]], key: str) -> list[Any]:
    """The entries that none of ours replaces."""
    names = {entry[key] for entry in ours}
    return [e for e in entries if not (isinstance(e, dict) and e.get(key) in names)]


def _update(table: Any, settings: dict[str, Any], file: ConfigFile, where: str) -> None:
    """Set what ``settings`` names, tables key by key. Raises ``ConnectError``."""
    if not isinstance(table, dict):
        raise ConnectError(f"{where} should hold a table")
    for key, value in settings.items():
        if isinstance(value, dict) and key in table:
            _update(table[key], value, file, f"{where}: {key}")
        elif isinstance(value, list) and file.list_key and isinstance(table.get(key), list):
            table[key] = [*_others(table[key], value, file.list_key), *value]
        else:
            table[key] = value
