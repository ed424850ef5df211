"""The project's own source, parsed once: what the house tests look at."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file. name: dotted; path: relative to the checkout; lines: physical lines."""

    name: str
    path: str
    lines: int
    tree: ast.Module
    text: str

    @property
    def room(self) -> str:
        """``engine`` of ``agentspec.engine.core``; ``cli`` of ``agentspec.cli``; else the top."""
        parts = self.name.split(".")
        return parts[1] if parts[0] == "agentspec" and len(parts) > 1 else parts[0]


def _name(path: Path, base: Path) -> str:
    parts = list(path.relative_to(base).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parse(path: Path, base: Path) -> Module:
    text = path.read_text()
    relative = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    return Module(_name(path, base), relative, text.count("\n"), ast.parse(text), text)


@cache
def modules() -> tuple[Module, ...]:
    """Every module of ``agentspec`` and ``agentspec_kernels``."""
    found = [parse(p, ROOT) for p in sorted((ROOT / "agentspec").rglob("*.py"))]
    kernels = ROOT / "kernels"
    return (*found, *(parse(p, kernels) for p in sorted(kernels.rglob("*.py"))))


def imports(module: Module) -> Iterator[tuple[str, int]]:
    """(dotted name, line) of each import, wherever it stands; relative ones resolved."""
    package = module.name.split(".")
    if not module.path.endswith("__init__.py"):
        package = package[:-1]
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield f"{stem}.{alias.name}", node.lineno


def functions(module: Module) -> Iterator[tuple[str, int]]:
    """(name, physical lines) of each function, nested ones and docstrings included."""
    for node in ast.walk(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            yield node.name, node.end_lineno - node.lineno + 1
