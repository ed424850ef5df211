"""The lock against pyproject.toml: complete, hashed, without torch and without any place."""

from __future__ import annotations

import re
import tomllib

import pytest
from packaging.requirements import Requirement

from tests.house.source import ROOT

LOCK = (ROOT / "requirements.lock").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENTRY = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))? \\\n((?:    --hash=\S+(?: \\)?\n)+)", re.M)
WANTED = [
    Requirement(line)
    for lines in (PROJECT["dependencies"], *PROJECT["optional-dependencies"].values())
    for line in lines
    if not line.startswith("torch>")
]


def entries() -> list[re.Match[str]]:
    return list(ENTRY.finditer(LOCK))


def test_every_line_belongs_to_a_hashed_entry():
    code = [line for line in LOCK.splitlines() if not line.lstrip().startswith("#")]
    assert len(code) == sum(found.group(0).count("\n") for found in entries()) > 1000
    for found in entries():
        hashes = re.findall(r"--hash=(\S+)", found.group(4))
        assert hashes and all(re.fullmatch(r"sha256:[0-9a-f]{64}", one) for one in hashes)


def test_torch_is_installed_apart():
    names = {found.group(1) for found in entries()}
    assert "torch" not in names and not any(name.startswith("nvidia-") for name in names)


def test_no_place_is_named():
    assert not re.search(r"https?:|file:|--(extra-)?index|--find-links| @ ", LOCK)


@pytest.mark.parametrize("wanted", WANTED, ids=lambda wanted: wanted.name)
def test_what_the_project_asks_for_is_locked(wanted: Requirement):
    name = re.sub(r"[-_.]+", "-", wanted.name).lower()
    versions = [found.group(2) for found in entries() if found.group(1) == name]
    assert versions and all(wanted.specifier.contains(version) for version in versions)
