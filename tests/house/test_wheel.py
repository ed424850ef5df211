"""The base wheel in a fresh environment without torch, used from an empty folder."""

from __future__ import annotations

import importlib.metadata as metadata
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.house.source import ROOT


def _name(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def base_closure() -> set[str]:
    """Distributions that a plain ``pip install agentspec`` brings, itself left out."""
    done: set[tuple[str, str]] = set()
    todo = [("agentspec", "")]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in done:
            continue
        done.add((name, extra))
        for line in metadata.requires(name) or []:
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                wanted = _name(requirement.name)
                todo += [(wanted, ""), *((wanted, inner) for inner in requirement.extras)]
    return {name for name, _ in done} - {"agentspec"}


def link_distributions(names: set[str], folder: Path) -> None:
    """Link the top-level files of installed distributions into ``folder``."""
    for name in names:
        distribution = metadata.distribution(name)
        for file in distribution.files or []:
            top = file.parts[0]
            if top not in {"..", "__pycache__"} and not (folder / top).exists():
                (folder / top).symlink_to(Path(str(distribution.locate_file(top))))


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``bin`` of a new environment that holds the wheel and its base dependencies alone."""
    root = tmp_path_factory.mktemp("fresh")
    venv, linked = root / "venv", root / "linked"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    linked.mkdir()
    link_distributions(base_closure(), linked)
    python = venv / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
    subprocess.run([*pip, "--no-index", "--no-deps", str(wheel)], check=True, timeout=120)
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "linked.pth").write_text(f"{linked}\n")
    return venv / "bin"


def run(installed: Path, cwd: Path, *command: str) -> str:
    env = {"PATH": f"{installed}:/usr/bin:/bin", "HOME": str(cwd)}
    done = subprocess.run(
        [installed / command[0], *command[1:]],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_carries_everything(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)
    assert any(re.match(r"agentspec_kernels/\w+/reference\.py$", n) for n in names)
    assert any(re.match(r"agentspec/_grammars/\w+/format\.toml$", n) for n in names)
    assert "agentspec/_migrations/env.py" in names
    assert any(n.startswith("agentspec/_migrations/versions/") for n in names)
    assert not any(n.startswith(("tests/", "kernels/")) or "__pycache__" in n for n in names)


def test_torch_is_not_there(installed: Path, tmp_path: Path):
    code = "from importlib.util import find_spec as f; print(f('torch'), f('triton'), f('pytest'))"
    assert run(installed, tmp_path, "python", "-c", code).split() == ["None"] * 3


def test_version(installed: Path, tmp_path: Path):
    assert metadata.version("agentspec") in run(installed, tmp_path, "agentspec", "--version")


def test_migrations_run_from_the_wheel(installed: Path, tmp_path: Path):
    data = tmp_path / "somewhere"
    run(installed, tmp_path, "agentspec", "db", "upgrade", "--data-dir", str(data))
    run(installed, tmp_path, "agentspec", "db", "check", "--data-dir", str(data))
    assert (data / "agentspec.db").stat().st_size > 0


def test_data_folders_come_from_the_wheel(installed: Path, tmp_path: Path):
    code = "from agentspec.resources import data_dir; print(data_dir('grammars'))"
    folder = Path(run(installed, tmp_path, "python", "-c", code).strip())
    assert folder.is_relative_to(installed.parent)
    assert list(folder.glob("*/format.toml"))
