"""Code and edit prompts from the standard library of the Python that runs this."""

from __future__ import annotations

import ast
import random
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .sides import Side, side_of

_LINES = range(6, 31)
_SKIPPED = {"test", "tests", "site-packages", "idlelib", "lib2to3", "pydoc_data", "encodings"}
_CODE = "You write code."
_EDIT = "You edit files. Answer with the whole new file in one code block and nothing else."


@dataclass(frozen=True, slots=True)
class Function:
    """One documented function. about: the first sentence of its docstring; text: its source."""

    module: str
    name: str
    arguments: tuple[str, ...]
    about: str
    text: str


def functions(side: Side) -> list[Function]:
    """Every function of fitting length on this side, in order of files."""
    return [found for found in _all() if side_of(found.module, found.name) == side]


@cache
def _all() -> tuple[Function, ...]:
    root = Path(sysconfig.get_path("stdlib"))
    paths = sorted(p for p in root.rglob("*.py") if not _SKIPPED & set(p.relative_to(root).parts))
    return tuple(
        found
        for path in paths
        for found in _functions(path, path.relative_to(root).with_suffix("").as_posix())
    )


def _functions(path: Path, module: str) -> Iterator[Function]:
    try:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
    except (SyntaxError, UnicodeDecodeError):
        return
    lines = text.splitlines()
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name.startswith("__"):
            continue
        about = (ast.get_docstring(node) or "").partition("\n")[0].strip().rstrip(".")
        source = lines[node.lineno - 1 : node.end_lineno]
        if len(about) < 20 or len(source) not in _LINES:
            continue
        indent = len(source[0]) - len(source[0].lstrip())
        names = tuple(a.arg for a in node.args.args if a.arg not in ("self", "cls"))
        yield Function(
            module, node.name, names, about, "\n".join(x[indent:] for x in source) + "\n"
        )


_ASKING = (
    "Write a Python function {name}({args}). {about}.",
    "Write a Python function {name} that does this: {about}. Explain nothing.",
    "Implement {name}({args}) in Python: {about}.",
    "{about}. Write that as a Python function called {name}.",
    "Write {name} in Python with type hints and a short docstring. {about}.",
    "Show me how to write this in Python: {about}.",
)
_READING = (
    "Explain what this function does.\n\n```python\n{text}```",
    "Write a unit test for this function.\n\n```python\n{text}```",
    "Find a mistake in this code, or say that there is none.\n\n```python\n{text}```",
)


def code(found: Function, draw: random.Random) -> dict[str, Any]:
    """A chat request that asks for code, now and then about code."""
    template = draw.choice(_READING if draw.random() < 0.25 else _ASKING)
    asked = template.format(
        name=found.name, args=", ".join(found.arguments), about=found.about, text=found.text
    )
    return {"messages": [{"role": "system", "content": _CODE}, {"role": "user", "content": asked}]}


_NEW_NAMES = ("value", "item", "entry", "source", "target", "buffer", "first", "given", "wanted")


def edit(found: Function, draw: random.Random) -> dict[str, Any] | None:
    """A chat request for the whole text with one change, in the form of ``prompts/edit.jsonl``.

    None where the function gives nothing to rename.
    """
    new = draw.choice(_NEW_NAMES)
    wishes = [f"Rename the function {found.name} to {new}_{found.name.strip('_')}."]
    wishes += [
        f"Rename the argument {old} to {new} everywhere." for old in found.arguments if old != new
    ]
    wishes.append("Remove the docstring.")
    asked = f"{draw.choice(wishes)}\n\n```python\n{found.text}```"
    return {"messages": [{"role": "system", "content": _EDIT}, {"role": "user", "content": asked}]}
