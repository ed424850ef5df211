"""Writing and undoing: bytes, modes, links and folders as they were, nothing half done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentspec.connect.base import ConfigFile, Configuration, ConnectError
from agentspec.connect.install import undo, write

OLD = b'{"theirs":   [1,2] }\r\n'


def configuration(*files: ConfigFile) -> Configuration:
    return Configuration(client="c", command="c", files=files)


def merging(path: Path, value: int = 1) -> ConfigFile:
    return ConfigFile(path, "json", {"ours": value})


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None
        for p in folder.rglob("*")
    }


def test_undo_restores_every_byte_mode_and_folder(tmp_path: Path):
    home, state = tmp_path / "home", tmp_path / "state"
    home.mkdir()
    theirs = home / "a.json"
    theirs.write_bytes(OLD)
    theirs.chmod(0o640)
    before = everything(home)
    new = home / "deep" / "er" / "b.json"
    changed = write(configuration(merging(theirs), merging(new)), state)
    assert changed == [theirs, new]
    assert json.loads(theirs.read_text()) == {"theirs": [1, 2], "ours": 1}
    assert theirs.stat().st_mode & 0o777 == 0o640 and new.stat().st_mode & 0o777 == 0o600
    undo("c", state)
    assert everything(home) == before
    assert theirs.stat().st_mode & 0o777 == 0o640
    assert not (state / "c").exists()


def test_writing_twice_keeps_the_first_backup(tmp_path: Path):
    theirs = tmp_path / "a.json"
    theirs.write_bytes(OLD)
    write(configuration(merging(theirs, 1)), tmp_path / "state")
    write(configuration(merging(theirs, 2)), tmp_path / "state")
    assert json.loads(theirs.read_text())["ours"] == 2
    undo("c", tmp_path / "state")
    assert theirs.read_bytes() == OLD


def test_a_link_stays_a_link(tmp_path: Path):
    real, link = tmp_path / "dotfiles.json", tmp_path / "a.json"
    real.write_bytes(OLD)
    link.symlink_to(real)
    write(configuration(merging(link)), tmp_path / "state")
    assert link.is_symlink() and "ours" in json.loads(real.read_text())
    undo("c", tmp_path / "state")
    assert link.is_symlink() and real.read_bytes() == OLD


def test_a_file_changed_since_is_left_alone(tmp_path: Path):
    theirs, other = tmp_path / "a.json", tmp_path / "b.json"
    theirs.write_bytes(OLD)
    write(configuration(merging(other), merging(theirs)), tmp_path / "state")
    theirs.write_text('{"edited": true}')
    with pytest.raises(ConnectError, match=r"a\.json was changed.*state/c/1"):
        undo("c", tmp_path / "state")
    assert theirs.read_text() == '{"edited": true}' and other.exists()


def test_nothing_is_written_when_one_file_cannot_be(tmp_path: Path):
    good, bad = tmp_path / "a.json", tmp_path / "b.json"
    bad.write_text("// mine\n{}")
    with pytest.raises(ConnectError):
        write(configuration(merging(good), merging(bad)), tmp_path / "state")
    assert not good.exists() and bad.read_text() == "// mine\n{}"


def test_a_write_that_was_cut_short_can_be_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import agentspec.connect.install as install

    first, second = tmp_path / "a.json", tmp_path / "b.json"
    first.write_bytes(OLD)
    second.write_bytes(OLD)
    real = install._replace

    def full_disk(path: Path, data: bytes) -> None:
        if path == second:
            raise OSError(28, "No space left on device")
        real(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(install, "_replace", full_disk)
        with pytest.raises(OSError, match="No space"):
            write(configuration(merging(first), merging(second)), tmp_path / "state")
    assert first.read_bytes() != OLD
    undo("c", tmp_path / "state")
    assert (first.read_bytes(), second.read_bytes()) == (OLD, OLD)


def test_undo_without_write_is_told(tmp_path: Path):
    with pytest.raises(ConnectError, match="nothing was written for c"):
        undo("c", tmp_path / "state")
