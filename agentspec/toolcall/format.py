"""A model family's tool-call format, read from its folder in ``grammars/``."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from agentspec.resources import data_dir


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """Markers, separators and templates of one format (see a folder's format.toml).

    tools_budget_chars: how many characters the tool list may take in the prompt.
    max_calls: most calls in one answer. grammar, system: the templates' text.
    """

    name: str
    open: str
    close: str
    list_open: str
    separator: str
    list_close: str
    name_key: str
    arguments_key: str
    max_calls: int
    result_open: str
    result_close: str
    result_role: str
    tools_budget_chars: int
    grammar: str
    system: str

    def head(self, name: str) -> str:
        """A call's text up to its arguments."""
        return (
            f"{{{json.dumps(self.name_key)}: {json.dumps(name)}, {json.dumps(self.arguments_key)}: "
        )

    @property
    def tail(self) -> str:
        """A call's text after its arguments."""
        return "}"

    def render_calls(self, calls: list[tuple[str, str]]) -> str:
        """(name, arguments as JSON text) pairs in the form the model writes them."""
        texts = [self.head(name) + arguments + self.tail for name, arguments in calls]
        body = self.list_open + self.separator.join(texts) + self.list_close
        return self.open + body + self.close


def format_names() -> list[str]:
    """The formats there are, sorted."""
    return sorted(file.parent.name for file in data_dir("grammars").glob("*/format.toml"))


@lru_cache(maxsize=32)
def load_format(name: str) -> ToolFormat:
    """The format of that name. Raises ``FileNotFoundError`` when there is no such folder."""
    return read_format(data_dir("grammars") / name)


def read_format(folder: Path) -> ToolFormat:
    """Read a format's folder. A missing key raises ``KeyError`` that names it."""
    table = tomllib.loads((folder / "format.toml").read_text(encoding="utf-8"))
    markers, call, result = table["markers"], table["call"], table["result"]
    return ToolFormat(
        name=folder.name,
        open=markers["open"],
        close=markers["close"],
        list_open=markers["list_open"],
        separator=markers["separator"],
        list_close=markers["list_close"],
        name_key=call["name_key"],
        arguments_key=call["arguments_key"],
        max_calls=call["max_calls"],
        result_open=result["open"],
        result_close=result["close"],
        result_role=result["role"],
        tools_budget_chars=table["prompt"]["tools_budget_chars"],
        grammar=(folder / "grammar.lark").read_text(encoding="utf-8"),
        system=(folder / "system.txt").read_text(encoding="utf-8").strip(),
    )
