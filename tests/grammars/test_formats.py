"""Every format folder: complete, and its samples read as their expectations say."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.toolcall.format import load_format, read_format
from agentspec.toolcall.parser import CallDropped, CallEnd, CallStart, Parser

from .samples import FOLDERS, SAMPLES, Sample, read

by_id = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.id)
by_folder = pytest.mark.parametrize("folder", FOLDERS, ids=lambda path: path.name)
FAMILIES = {
    *("smollm2", "hermes", "llama3_json", "pythonic", "qwen3_coder", "glm45", "glm47", "kimi_k2"),
    *("deepseek_v3", "deepseek_v31", "deepseek_v32", "deepseek_v4", "harmony", "mistral_list"),
    *("mistral_args", "gemma3", "gemma4", "functiongemma", "minimax_m2", "smollm3", "exaone"),
}


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]


def test_the_families_are_there():
    assert {folder.name for folder in FOLDERS} == FAMILIES


@by_folder
def test_folders_are_complete(folder: Path):
    fmt = read_format(folder)
    assert fmt == load_format(folder.name)
    for name in ("start", "open", "list_open", "more", "list_close", "close", "alternatives"):
        assert f"${name}" in fmt.grammar
    assert "$tools" in fmt.system and "$example" in fmt.system
    assert fmt.recognition.names and fmt.source
    kinds = {path.name.split("_")[0] for path in (folder / "samples").glob("*.txt")}
    assert {"good", "bad"} <= kinds


@by_id
def test_samples_read_as_expected(sample: Sample):
    found, expected = sample.read([sample.text]), sample.expected
    assert found.text == expected["text"]
    assert found.reasoning == expected.get("reasoning", "")
    assert found.calls == expected["calls"]
    assert found.dropped == expected["dropped"]


@by_id
def test_cuts_change_nothing(sample: Sample):
    text, whole = sample.text, sample.read([sample.text])
    assert sample.read(list(text)) == whole
    for size in (2, 3, 5, 7, 11):
        assert sample.read([text[i : i + size] for i in range(0, len(text), size)]) == whole
    random_cuts = random.Random(sample.id)
    for count in (1, 1, 1, 1, 1, 1, 2, 2, 3, 5, 9):
        cuts = [random_cuts.randrange(len(text) + 1) for _ in range(count)]
        assert sample.read(pieces_of(text, cuts)) == whole, cuts


@given(st.sampled_from(SAMPLES), st.lists(st.integers(0, 2000), max_size=12))
def test_any_cuts_change_nothing(sample: Sample, cuts: list[int]):
    assert sample.read(pieces_of(sample.text, cuts)) == sample.read([sample.text])


@by_id
def test_a_torn_text_holds_no_other_calls(sample: Sample):
    """Whatever the place of the cut: the calls before it, whole, and no other one."""
    calls = sample.expected["calls"]
    for end in range(len(sample.text)):
        found = sample.read([sample.text[:end]])
        assert found.calls == calls[: len(found.calls)], sample.text[:end]


@by_id
def test_a_start_precedes_each_end_with_the_calls_ordinal(sample: Sample):
    started: list[int] = []
    seen: list[int] = []
    for event in sample.read(list(sample.text)).others:
        if isinstance(event, CallStart):
            started.append(event.index)
        elif isinstance(event, CallEnd):
            assert event.index == started[-1]
            seen.append(event.index)
        elif isinstance(event, CallDropped):
            seen.append(event.index)
    assert seen == list(range(len(seen)))


@by_folder
def test_what_is_rendered_is_parsed_back(folder: Path):
    fmt = load_format(folder.name)
    tools = {"a": {}, "b-c.d": {"properties": {"s": {"type": "string"}}}}
    texts = ['"}] {\\', " é\n\n"]
    # Where strings stand as they are, they cannot hold the mark that ends them.
    texts += [fmt.close, fmt.open] if fmt.encoding in ("json", "python") else []
    nested = {"x": texts} if fmt.tags is None else {}
    calls = [
        ("a", {}),
        ("b-c.d", {"s": "".join(texts), "n": {"i": [1, None, True, -2.5], **nested}}),
    ]
    calls = calls[:1] if fmt.max_calls == 1 else calls
    written = fmt.render_calls([(name, json.dumps(arguments)) for name, arguments in calls])
    found = read(Parser(fmt, tools), [written])
    assert [(call["name"], call["arguments"]) for call in found.calls] == calls
