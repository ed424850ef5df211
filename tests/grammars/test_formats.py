"""Every format folder: complete, and its samples read as their expectations say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentspec.resources import data_dir
from agentspec.toolcall.format import load_format, read_format
from agentspec.toolcall.parser import CallDropped, CallEnd, CallStart, Event, Parser, TextDelta

FOLDERS = sorted(path.parent for path in data_dir("grammars").glob("*/format.toml"))
SAMPLES = [path for folder in FOLDERS for path in sorted((folder / "samples").glob("*.txt"))]


def events(fmt, pieces: list[str]) -> list[Event]:
    parser, out = Parser(fmt), []
    for piece in pieces:
        out += parser.feed(piece)
    return out + parser.finish()


def digest(found: list[Event]) -> tuple[str, list[Event]]:
    """(the whole text, everything else in order)."""
    text = "".join(event.text for event in found if isinstance(event, TextDelta))
    return text, [event for event in found if not isinstance(event, TextDelta)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_folders_are_complete(folder: Path):
    fmt = read_format(folder)
    assert fmt == load_format(folder.name)
    for name in ("start", "open", "list_open", "more", "list_close", "close", "alternatives"):
        assert f"${name}" in fmt.grammar
    assert "$tools" in fmt.system and "$example" in fmt.system
    kinds = {path.name.split("_")[0] for path in (folder / "samples").glob("*.txt")}
    assert {"good", "bad"} <= kinds


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_samples_read_as_expected_however_they_are_cut(sample: Path):
    fmt = load_format(sample.parts[-3])
    text = sample.read_text(encoding="utf-8")
    expected = json.loads(sample.with_suffix(".json").read_text(encoding="utf-8"))
    whole = digest(events(fmt, [text]))
    calls = [event for event in whole[1] if isinstance(event, CallEnd)]
    assert whole[0] == expected["text"]
    assert [
        {"name": call.name, "arguments": json.loads(call.arguments_text)} for call in calls
    ] == expected["calls"]
    assert sum(isinstance(event, CallDropped) for event in whole[1]) == expected["dropped"]
    assert digest(events(fmt, list(text))) == whole
    for i in range(len(text) + 1):
        assert digest(events(fmt, [text[:i], text[i:]])) == whole
        for j in range(i, len(text) + 1, 7):
            assert digest(events(fmt, [text[:i], text[i:j], text[j:]])) == whole


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: f"{path.parts[-3]}-{path.stem}")
def test_a_start_precedes_each_end_with_the_calls_ordinal(sample: Path):
    fmt = load_format(sample.parts[-3])
    started: list[int] = []
    seen: list[int] = []
    for event in digest(events(fmt, list(sample.read_text(encoding="utf-8"))))[1]:
        if isinstance(event, CallStart):
            started.append(event.index)
        elif isinstance(event, CallEnd):
            assert event.index == started[-1]
            seen.append(event.index)
        elif isinstance(event, CallDropped):
            seen.append(event.index)
    assert seen == list(range(len(seen)))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
def test_what_is_rendered_is_parsed_back(folder: Path):
    fmt = load_format(folder.name)
    calls = [("a", "{}"), ("b-c.d", json.dumps({"x": ['"}]', fmt.close, fmt.open, "é\n"]}))]
    _, found = digest(events(fmt, [fmt.render_calls(calls)]))
    ends = [(e.name, e.arguments_text) for e in found if isinstance(e, CallEnd)]
    assert ends == calls
