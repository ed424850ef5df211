"""Drawings, read back: what is drawn stands in the right proportion to the numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentspec.dashboard import blocks, text
from agentspec.dashboard.charts import Columns, Layer, _x_labels, curve, grouped, stacked
from agentspec.dashboard.sheet import Column
from agentspec.dashboard.svg import BOTTOM, LEFT, RIGHT, TOP, tag, ticks

COLUMNS = Columns([f"column {i}" for i in range(12)], ["a", *[""] * 10, "<b>"])


def random_layers(seed: int) -> list[Layer]:
    rng = random.Random(seed)
    return [
        Layer(name, f"c-{name}", [rng.randrange(200) for _ in range(12)]) for name in ("x", "y")
    ]


def bars(picture: str, color: str) -> list[list[tuple[float, float, float, float]]]:
    """Per column: x, width (per cent), upper and lower edge (pixels) of the bars of a colour."""
    root = ElementTree.fromstring(picture)
    columns = [g for g in root.iter("g") if g.get("class") == "column"]
    return [
        [
            (
                float(r.get("x", "").rstrip("%")),
                float(r.get("width", "").rstrip("%")),
                float(r.get("y", "")),
                float(r.get("y", "")) + float(r.get("height", "")),
            )
            for r in column.iter("rect")
            if color in r.get("class", "").split()
        ]
        for column in columns
    ]


@pytest.mark.parametrize("seed", range(3))
def test_stacked_bars_stand_on_each_other(seed: int):
    x, y = random_layers(seed)
    picture = stacked("label", COLUMNS, [x, y], str)
    scale = (BOTTOM - TOP) / ticks(max(a + b for a, b in zip(x.values, y.values, strict=True)))[-1]
    lower, upper = bars(picture, "c-x"), bars(picture, "c-y")
    for index in range(12):
        for (_, _, top, bottom), value in zip(
            lower[index] + upper[index],
            [v for v in (x.values[index], y.values[index]) if v],
            strict=True,
        ):
            assert bottom - top == pytest.approx(max(value * scale, 1), abs=0.01)
        if x.values[index]:
            assert lower[index][0][3] == pytest.approx(BOTTOM, abs=0.01)
            if y.values[index]:
                assert upper[index][0][3] == pytest.approx(lower[index][0][2], abs=1.01)


def test_grouped_bars_do_not_overlap_and_stay_inside():
    x, y = random_layers(5)
    picture = grouped("label", COLUMNS, [x, y], str)
    spans = sorted(
        (left, left + width)
        for color in ("c-x", "c-y")
        for column in bars(picture, color)
        for left, width, _, _ in column
    )
    assert spans[0][0] >= LEFT and spans[-1][1] <= RIGHT
    assert all(a[1] <= b[0] for a, b in zip(spans, spans[1:], strict=False))


def test_zero_draws_no_bar_and_little_draws_one():
    layer = Layer("x", "c-x", [0, 1, 1_000_000])
    columns = Columns(["a", "b", "c"], ["", "", ""])
    assert [len(column) for column in bars(stacked("", columns, [layer], str), "c-x")] == [0, 1, 1]


def test_a_curve_breaks_where_a_value_is_unknown():
    layer = Layer("x", "c-x", [0.0, 1.0, None, 0.5, 0.25])
    columns = Columns(list("abcde"), list("abcde"))
    root = ElementTree.fromstring(curve("label", columns, layer, str, highest=1.0))
    lines = [line for line in root.iter("line") if "curve" in line.get("class", "")]
    assert len(lines) == 2
    heights = [float(dot.get("cy", "")) for dot in root.iter("circle")]
    middle = (TOP + BOTTOM) / 2
    assert heights == pytest.approx([BOTTOM, TOP, middle, (middle + BOTTOM) / 2])


def test_the_pointer_is_told_the_values_and_the_label_is_escaped():
    layer = Layer("x", "c-x", [3] * 12)
    root = ElementTree.fromstring(stacked('a "label" <here>', COLUMNS, [layer], lambda v: f"<{v}>"))
    assert root.get("aria-label") == 'a "label" <here>' and root.get("role") == "img"
    assert [t.text for t in root.iter("title")][0] == "column 0\nx: <3>"
    assert [t.text for t in root.iter("text") if t.get("class") == "x"] == ["a", "<b>"]


def test_nothing_is_drawn_with_a_style():
    layers = random_layers(1)
    for picture in (
        stacked("", COLUMNS, layers, str),
        grouped("", COLUMNS, layers, str),
        curve("", COLUMNS, layers[0], str),
    ):
        assert "style" not in picture


@given(st.floats(1e-9, 1e15), st.booleans())
def test_ticks_cover_the_values_in_few_even_steps(highest: float, whole: bool):
    found = ticks(highest, whole=whole)
    assert found[0] == 0 and found[-1] >= highest * (1 - 1e-6)
    assert 2 <= len(found) <= 7
    steps = [b - a for a, b in zip(found, found[1:], strict=False)]
    assert steps == pytest.approx([steps[0]] * len(steps))
    assert found[-2] < highest
    if whole:
        assert all(value == int(value) for value in found)


def test_an_empty_axis_has_a_top():
    assert ticks(0) == [0.0, 1.0]


def test_elements_escape_everything():
    assert (
        tag("text", "<&>", aria_label='"<') == '<text aria-label="&#34;&lt;">&lt;&amp;&gt;</text>'
    )


@pytest.mark.parametrize(("form", "expected"), [(text.count, True), (text.share, False)])
def test_an_axis_of_counts_has_whole_ticks(form: Callable[[float], str], expected: bool):
    """A tick at 2.5 would be labelled 2."""
    columns = [Column("Name", "name"), Column("Requests", "requests")]
    block = blocks.bars("b", "B", "", columns, ["x"], [Layer("requests", "c-ok", [10])], form)
    labels = re.findall(r'<text class="y"[^>]*>([^<]*)<', str(block.picture))
    assert (labels == ["0", "5", "10"]) is expected


def test_names_that_would_run_into_each_other_give_way_on_a_narrow_screen():
    names = ["chat / claude-cli", "chat / opencode", "edit / codex", "tool / codex"]
    labels = _x_labels(Columns(names, names))
    assert [' minor"' in label for label in labels] == [False, True, False, True]
    last = [*[""] * 6, "tool / Python-url"]
    assert ' minor"' in _x_labels(Columns(last, last))[0]  # it would stand out of its card
    short = ["00:00", "06:00", "12:00", "18:00"]
    assert not any(' minor"' in label for label in _x_labels(Columns(short, short)))
