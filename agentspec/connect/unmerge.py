"""The opposite of ``merge``: our settings taken out of a file that has changed since.

Clients write into their own files (a schema's address, a version, a date). Nothing here touches a
disk.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import tomlkit
import yaml
from tomlkit.exceptions import TOMLKitError

from .base import ConfigFile, ConnectError
from .merge import dumped, spelled_json


def taken_out(file: ConfigFile, old: str | None, now: str) -> str | None:
    """The text without what ``merged`` put there, or None where nothing else is left and there was
    no file.

    old: what the file held before; values of ours that replaced others get those back. All else
    that ``now`` holds stays. Raises ``ConnectError`` for a text that cannot be read.
    """
    assert not file.own and file.kind != "shell"
    ours = dumped(file)
    if file.kind == "yaml" and now.count(ours) == 1 and not _entries(file, old):
        left = now.replace(ours, "")
        return left if left.strip() or old is not None else None
    load, dump = _SPELLINGS[file.kind]
    try:
        value, before = load(now), load(old) if old and old.strip() else None
        empty = _take(value, file.settings, before, file.list_key)
    except (ValueError, TypeError, TOMLKitError, yaml.YAMLError) as error:
        raise ConnectError(f"{file.path} cannot be read: {error}") from None
    return None if empty and old is None else dump(value, now)


def _entries(file: ConfigFile, old: str | None) -> bool:
    """Whether the list had entries of our names before."""
    names = {entry[file.list_key] for entry in file.settings}
    before = yaml.safe_load(old) if old else None
    return any(isinstance(e, dict) and e.get(file.list_key) in names for e in before or ())


def _take(value: Any, ours: Any, before: Any, list_key: str | None) -> bool:
    """Take ``ours`` out of ``value`` in place; returns whether it is empty then."""
    if isinstance(ours, list):
        return _take_entries(value, ours, before, list_key)
    if not isinstance(value, dict):
        raise TypeError("it should hold a table")
    table = before if isinstance(before, dict) else {}
    for key in ours.keys() & value.keys():
        deep = isinstance(ours[key], dict) or (isinstance(ours[key], list) and list_key)
        if deep and isinstance(value[key], type(ours[key])):
            if _take(value[key], ours[key], table.get(key), list_key) and key not in table:
                del value[key]
        elif key in table:
            value[key] = deepcopy(table[key])
        else:
            del value[key]
    return not value


def _take_entries(value: Any, ours: list[Any], before: Any, list_key: str | None) -> bool:
    """The same for a list of tables, told apart by ``list_key``."""
    if not isinstance(value, list) or list_key is None:
        raise TypeError("it should hold a list")
    names = {entry[list_key] for entry in ours}
    entries = before if isinstance(before, list) else []
    kept = [e for e in value if not (isinstance(e, dict) and e.get(list_key) in names)]
    back = [e for e in entries if isinstance(e, dict) and e.get(list_key) in names]
    value[:] = [*kept, *back]
    return not value


def _yaml_text(value: Any, now: str) -> str:
    return yaml.safe_dump(value, sort_keys=False, allow_unicode=True) if value else ""


_SPELLINGS: dict[str, tuple[Callable[[str], Any], Callable[[Any, str], str]]] = {
    "json": (json.loads, spelled_json),
    "toml": (tomlkit.parse, lambda value, now: tomlkit.dumps(value)),
    "yaml": (yaml.safe_load, _yaml_text),
}
