"""The samples that lie beside the formats, and how they are read."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.resources import data_dir
from agentspec.toolcall.format import ToolFormat, load_format
from agentspec.toolcall.parser import CallDropped, CallEnd, Event, Parser, ReasoningDelta, TextDelta

FOLDERS = sorted(path.parent for path in data_dir("grammars").glob("*/format.toml"))
TOOLS: dict[str, Any] = json.loads(
    (data_dir("grammars") / "sample_tools.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True, slots=True)
class Sample:
    """A raw answer and what must be read in it."""

    id: str
    format: ToolFormat
    text: str
    expected: dict[str, Any]

    @property
    def good(self) -> bool:
        return not self.id.split("-", 1)[1].startswith("bad")

    def read(self, pieces: Iterable[str]) -> Read:
        """The sample's text, cut into ``pieces``, as the parser reads it."""
        # SmolLM2's samples are older than the tools: their names are not among them.
        tools = None if self.format.name == "smollm2" else TOOLS
        inside = self.expected.get("in_reasoning", False)
        return read(Parser(self.format, tools, in_reasoning=inside), pieces)


@dataclass(frozen=True, slots=True)
class Read:
    """What was read: the text and the reasoning in one piece each, everything else in order."""

    text: str
    reasoning: str
    others: list[Event]

    @property
    def calls(self) -> list[dict[str, Any]]:
        return [
            {"name": event.name, "arguments": json.loads(event.arguments_text)}
            for event in self.others
            if isinstance(event, CallEnd)
        ]

    @property
    def dropped(self) -> int:
        return sum(isinstance(event, CallDropped) for event in self.others)


def read(parser: Parser, pieces: Iterable[str]) -> Read:
    found: list[Event] = []
    for piece in pieces:
        found += parser.feed(piece)
    found += parser.finish()
    return Read(
        "".join(event.text for event in found if isinstance(event, TextDelta)),
        "".join(event.text for event in found if isinstance(event, ReasoningDelta)),
        [event for event in found if not isinstance(event, TextDelta | ReasoningDelta)],
    )


def _load(path: Path) -> Sample:
    expected = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    fmt = load_format(path.parts[-3])
    return Sample(f"{fmt.name}-{path.stem}", fmt, path.read_text(encoding="utf-8"), expected)


SAMPLES = [_load(path) for folder in FOLDERS for path in sorted((folder / "samples").glob("*.txt"))]
