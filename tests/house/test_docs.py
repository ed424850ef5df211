"""The pages against the code: every room is described, every command shown exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agentspec import cli
from tests.house.source import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
WORD = re.compile(r"[a-z][a-z-]*$")


def folders() -> list[str]:
    """Rooms (folders of ``agentspec``) and the three folders of data and kernels."""
    rooms = [p.parent.name for p in (ROOT / "agentspec").glob("*/__init__.py")]
    return sorted(rooms) + ["kernels", "grammars", "migrations"]


@pytest.mark.parametrize("folder", folders())
def test_lifecycle_names_every_room(folder: str):
    assert f"`{folder}/`" in (ROOT / "docs/lifecycle.md").read_text()


def commands(page: Path) -> set[tuple[str, ...]]:
    """``agentspec WORD ...`` in code blocks: the words before the first option or value."""
    blocks = re.findall(r"```(?:sh|console|bash)\n(.*?)```", page.read_text(), re.DOTALL)
    found = set()
    for line in "\n".join(blocks).splitlines():
        head, _, rest = line.strip().removeprefix("$ ").partition(" ")
        if head.rpartition("/")[2] == "agentspec":
            words = []
            for word in rest.split():
                if not WORD.match(word):
                    break
                words.append(word)
            found.add(tuple(words[:2]))
    return found


SHOWN = sorted({command for page in PAGES for command in commands(page)})


def test_pages_show_commands():
    assert ("serve",) in SHOWN and ("model", "get") in SHOWN


@pytest.mark.parametrize("command", SHOWN, ids=" ".join)
def test_shown_commands_exist(command: tuple[str, ...], capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stop:
        cli.main([*command, "--help"])
    assert stop.value.code == 0
    assert " ".join(("agentspec", *command)) in capsys.readouterr().out


def test_pages_link_to_files_that_exist():
    broken = []
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not (page.parent / target).exists():
                broken.append(f"{page.name}: {target}")
    assert broken == []
