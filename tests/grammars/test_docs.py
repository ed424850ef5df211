"""docs/toolcall.md: the table of formats says what the folders say."""

from __future__ import annotations

from pathlib import Path

from agentspec.toolcall.format import ToolFormat, format_names, load_format

PAGE = Path(__file__).resolve().parents[2] / "docs" / "toolcall.md"
ENCODINGS = {
    "json": "JSON",
    "tagged": "a tag an argument, typed by the tool's schema",
    "python": "Python literals",
    "quoted": "keys bare, strings between marks",
}


def row(fmt: ToolFormat) -> str:
    """One line of the table."""
    form = {"object": "object", "named": "name, then arguments", "message": "message of a channel"}
    encoding = ENCODINGS[fmt.encoding]
    if fmt.tags is not None and fmt.tags.string_open:
        encoding = "a tag an argument, which says whether it is a string"
    opening = f"`{fmt.open.strip()}`" if not fmt.anchored else "none: an answer's beginning"
    marks = fmt.reasoning
    thinks = f"`{marks.open.strip()}`" if marks else "channels" if fmt.channels else ""
    names = ", ".join(f"`{name}`" for name in fmt.recognition.names)
    cells = (f"`{fmt.name}`", names, opening, form[fmt.form], encoding, thinks)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def test_the_table_of_formats():
    rows = [row(load_format(name)) for name in format_names()]
    found = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line in rows]
    assert found == rows, "the page needs:\n" + "\n".join(rows)
