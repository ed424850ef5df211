"""A model family's tool-call format, read from its folder in ``grammars/``.

An answer's calls are written ``open list_open call (separator call)* list_close close``, a call
``head arguments tail``. The folder's format.toml holds the strings; ``$name``, ``$index`` and
``$id`` in a head or tail stand for the function's name, the call's ordinal and a short random id.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from agentspec.resources import data_dir

from .spelling import Spelling, spelled_value

Form = Literal["object", "named", "message"]
Encoding = Literal["json", "tagged", "python", "quoted"]


@dataclass(frozen=True, slots=True)
class Tags:
    """How a tagged argument is written: ``open key key_close value_open value value_close end``.

    string_open, json_open: what stands for ``value_open`` where the tag tells the value's kind.
    """

    open: str
    key_close: str
    value_open: str
    value_close: str
    end: str
    string_open: str = ""
    json_open: str = ""


@dataclass(frozen=True, slots=True)
class Reasoning:
    """Marks around what the model thinks before it answers.

    anywhere: they may stand behind text as well, not only at the answer's beginning. ends_at_call:
    a call ends the reasoning that was left open.
    """

    open: str
    close: str
    anywhere: bool = False
    ends_at_call: bool = False


@dataclass(frozen=True, slots=True)
class Channels:
    """Answers made of messages with a channel each (gpt-oss): header, ``message``, body, an end.

    recipient: what stands in a header before a called function's name. reasoning: the channels that
    hold reasoning; every other one without a recipient is text.
    """

    start: str
    channel: str
    message: str
    ends: tuple[str, ...]
    recipient: str
    reasoning: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recognition:
    """By what a model is known: strings of its chat template, or its name (shell patterns).

    template: any of these groups, all strings of a group; none of ``absent`` may be there.
    """

    template: tuple[tuple[str, ...], ...] = ()
    absent: tuple[str, ...] = ()
    names: tuple[str, ...] = ()

    def knows_template(self, template: str) -> bool:
        if any(text in template for text in self.absent):
            return False
        return any(all(text in template for text in group) for group in self.template)

    def knows_name(self, model: str) -> bool:
        base = model.lower().rsplit("/", 1)[-1]
        return any(fnmatchcase(base, pattern) for pattern in self.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """Markers, separators and templates of one format (see a folder's format.toml).

    form: a call is a JSON ``object`` that holds its name, or a ``named`` text around arguments, or
    a ``message`` of a channel. anchored: calls stand at an answer's beginning or nowhere: there is
    no marker of their own. id_open: what stands before an id behind the name; id_needed: there
    is one. also_open, also_close: marks that may enclose a block beside its own.
    tools_budget_chars: how many characters the tool list may take in the prompt. max_calls: most
    calls in one answer. grammar, system: the templates' text.
    """

    name: str
    source: str
    form: Form
    open: str
    close: str
    list_open: str
    separator: str
    list_close: str
    also_open: tuple[str, ...]
    also_close: tuple[str, ...]
    anchored: bool
    head_template: str
    tail_template: str
    id_open: str
    id_needed: bool
    name_key: str
    arguments_key: str
    max_calls: int
    encoding: Encoding
    tags: Tags | None
    spelling: Spelling | None
    reasoning: Reasoning | None
    channels: Channels | None
    recognition: Recognition
    result_open: str
    result_close: str
    result_role: str
    tools_budget_chars: int
    grammar: str
    system: str

    def head(self, name: str, index: int = 0) -> str:
        """A call's text up to its arguments."""
        return _filled(self.head_template, name, index)

    @property
    def tail(self) -> str:
        """A call's text after its arguments, that of the first call."""
        return _filled(self.tail_template, "", 0)

    def render_calls(self, calls: list[tuple[str, str]]) -> str:
        """(name, arguments as JSON text) pairs in the form the model writes them."""
        texts = [
            self.head(name, i) + self.render_arguments(text) + _filled(self.tail_template, name, i)
            for i, (name, text) in enumerate(calls)
        ]
        body = self.list_open + self.separator.join(texts) + self.list_close
        return self.open + body + self.close

    def render_arguments(self, text: str) -> str:
        """Arguments given as JSON text, in this format's encoding; no object: as they are."""
        if self.encoding == "json":
            return text
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict):
            return text
        if self.tags is not None:
            return "".join(_tagged(self.tags, key, item) for key, item in value.items())
        assert self.spelling is not None
        if self.encoding == "python":
            return ", ".join(f"{k}={spelled_value(v, self.spelling)}" for k, v in value.items())
        return spelled_value(value, self.spelling)

    def begins_in_reasoning(self, prompt: str) -> bool:
        """Whether a rendered prompt ends inside reasoning that the template has opened."""
        marks = self.reasoning
        if marks is None:
            return False
        return prompt.rfind(marks.open) > prompt.rfind(marks.close)


def _filled(template: str, name: str, index: int) -> str:
    text = template.replace("$index", str(index)).replace("$id", f"call{index:05d}")
    return text.replace("$name", name)


def _tagged(tags: Tags, key: str, value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    typed = tags.string_open if isinstance(value, str) else tags.json_open
    opening = tags.open + key + tags.key_close + (typed or tags.value_open)
    return opening + text + tags.value_close + tags.end


def format_names() -> list[str]:
    """The formats there are, sorted."""
    return sorted(file.parent.name for file in data_dir("grammars").glob("*/format.toml"))


@lru_cache(maxsize=64)
def load_format(name: str) -> ToolFormat:
    """The format of that name. Raises ``FileNotFoundError`` when there is no such folder."""
    return read_format(data_dir("grammars") / name)


def read_format(folder: Path) -> ToolFormat:
    """Read a format's folder. A missing key raises ``KeyError`` that names it; ``grammar.lark`` and
    ``system.txt`` may be missing where those beside the folder serve."""
    table = tomllib.loads((folder / "format.toml").read_text(encoding="utf-8"))
    markers, call, result = table["markers"], table["call"], table["result"]
    arguments = table.get("arguments", {})
    return ToolFormat(
        name=folder.name,
        source=table["source"],
        form=call["form"],
        open=markers["open"],
        close=markers["close"],
        list_open=markers["list_open"],
        separator=markers["separator"],
        list_close=markers["list_close"],
        also_open=tuple(markers.get("also_open", ())),
        also_close=tuple(markers.get("also_close", ())),
        anchored=markers.get("anchored", False),
        head_template=call["head"],
        tail_template=call["tail"],
        id_open=call.get("id_open", ""),
        id_needed=call.get("id_needed", False),
        name_key=call.get("name_key", ""),
        arguments_key=call.get("arguments_key", ""),
        max_calls=call["max_calls"],
        encoding=arguments.get("encoding", "json"),
        tags=Tags(**arguments["tags"]) if "tags" in arguments else None,
        spelling=Spelling(**arguments["spelling"]) if "spelling" in arguments else None,
        reasoning=Reasoning(**table["reasoning"]) if "reasoning" in table else None,
        channels=_tuples(Channels, table["channels"]) if "channels" in table else None,
        recognition=_recognition(table.get("recognise", {})),
        result_open=result["open"],
        result_close=result["close"],
        result_role=result["role"],
        tools_budget_chars=table["prompt"]["tools_budget_chars"],
        grammar=_beside(folder, "grammar.lark"),
        system=_beside(folder, "system.txt").strip(),
    )


def _beside(folder: Path, file: str) -> str:
    own = folder / file
    return (own if own.is_file() else folder.parent / file).read_text(encoding="utf-8")


def _tuples(kind: Any, table: dict[str, Any]) -> Any:
    return kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in table.items()})


def _recognition(table: dict[str, Any]) -> Recognition:
    groups = tuple(tuple(group) for group in table.get("template", ()))
    return Recognition(groups, tuple(table.get("absent", ())), tuple(table.get("names", ())))
