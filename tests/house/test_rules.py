"""Rules of the house that a walk over the source can check."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator

import pytest

from tests.house.source import ROOT, Module, modules

ENVIRONMENT = {"agentspec/settings.py", "agentspec/resources.py", "agentspec/engine/config.py"}


@pytest.mark.parametrize("folder", ["kernels", "grammars", "migrations"])
def test_data_folders_are_no_packages(folder: str):
    """An import package named ``kernels`` shadows the one that transformers probes for."""
    assert (ROOT / folder).is_dir()
    assert not (ROOT / folder / "__init__.py").exists()


def _environment_reads(module: Module) -> Iterator[int]:
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and node.attr in {"environ", "getenv", "environb"}:
            yield node.lineno
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            yield from (node.lineno for a in node.names if a.name in {"environ", "getenv"})


def test_the_environment_is_read_in_one_place():
    reads = [
        f"{module.path}:{line}"
        for module in modules()
        if module.path not in ENVIRONMENT
        for line in _environment_reads(module)
    ]
    assert reads == []


def test_only_the_command_line_prints():
    """The linter holds this rule; it must be on, with no other exception than cli.py."""
    lint = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    assert "T20" in lint["select"]
    excepted = [path for path, codes in lint["per-file-ignores"].items() if "T20" in codes]
    assert excepted == ["agentspec/cli.py"]
    command = [sys.executable, "-m", "ruff", "check", "--select", "T20", "agentspec", "kernels"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def _strings(module: Module) -> Iterator[tuple[str, int]]:
    """String constants that are code: docstrings left out."""
    docs = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[:1]
            if body and isinstance(body[0], ast.Expr):
                docs.add(id(body[0].value))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Constant) and id(node) not in docs:
            value = node.value
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            if isinstance(text, str):
                yield text, node.lineno


def test_tool_call_markers_stand_in_grammars_only():
    found = [
        f"{module.path}:{line}"
        for module in modules()
        if module.room != "agentspec_kernels"
        for text, line in _strings(module)
        if any(marker in text for marker in ("<tool_call", "</tool_call", "<|tool", "[TOOL_CALLS]"))
    ]
    assert found == []


def test_modules_say_what_they_are_for():
    silent = [m.path for m in modules() if m.lines and not ast.get_docstring(m.tree)]
    assert silent == []
