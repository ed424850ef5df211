"""What the pages run of others is what the lock says, from where the script says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path

from starlette.testclient import TestClient

from agentspec.dashboard import assets

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "agentspec" / "dashboard" / "static" / "vendor"
FILES = json.loads((FOLDER / "vendor.lock.json").read_text())["files"]
FREE = {"0BSD", "BSD-3-Clause", "MIT"}


def test_every_script_is_locked_and_has_its_licence():
    assert {path.name for path in FOLDER.glob("*.js")} == set(FILES)
    for name, one in FILES.items():
        digest = hashlib.sha384((FOLDER / name).read_bytes()).digest()
        assert one["integrity"] == f"sha384-{base64.b64encode(digest).decode()}", name
        assert one["licence"] in FREE and one["package_integrity"].startswith("sha512-")
        words = (FOLDER / name.replace(".min.js", ".LICENSE")).read_text().lower()
        assert "permission" in words or "redistribution" in words


def test_the_script_that_fetches_them_names_the_same_versions():
    told = re.findall(
        r"^(\S+) ([\d.]+) \S+\.js (\S+)$", (ROOT / "scripts" / "vendor.sh").read_text(), re.M
    )
    assert {(f"{name}.min.js", package, version) for package, version, name in told} == {
        (name, one["package"], one["version"]) for name, one in FILES.items()
    }


def test_a_page_names_the_locked_digest_whatever_lies_there(
    client: TestClient, monkeypatch, tmp_path: Path
):
    """So that a browser refuses a file that was changed."""
    (tmp_path / "vendor").mkdir()
    for name in assets.ASSETS:
        (tmp_path / name).write_bytes((assets._FOLDER / name).read_bytes())
    before = assets.asset("vendor/htmx.min.js"), assets.asset("dashboard.js")
    for name in ("vendor/htmx.min.js", "dashboard.js"):
        (tmp_path / name).write_text("alert(1)")
    monkeypatch.setattr(assets, "_FOLDER", tmp_path)
    after = assets.asset("vendor/htmx.min.js"), assets.asset("dashboard.js")
    assert after[0] == before[0] and after[1] != before[1]
