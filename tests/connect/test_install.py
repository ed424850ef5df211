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


OURS = {"provider": {"ours": {"url": "u", "n": 1}}, "theme": "ours"}
ENTRY = [{"id": "m", "url": "u"}]


def changed_json(path: Path, **more) -> None:
    """As clients do: a key of their own, another layout."""
    path.write_text(json.dumps(json.loads(path.read_text()) | more))


@pytest.mark.parametrize(
    "old",
    [
        {},
        {"theme": "theirs"},
        {"provider": {"theirs": {"url": "x"}}},
        {"provider": {"ours": {"url": "older", "k": [1]}}, "theme": None},
        {"provider": {}},
    ],
)
def test_what_others_wrote_since_stays(tmp_path: Path, old: dict):
    theirs, other = tmp_path / "a.json", tmp_path / "b.json"
    theirs.write_text(json.dumps(old))
    files = (merging(other), ConfigFile(theirs, "json", OURS))
    write(configuration(*files), tmp_path / "state")
    changed_json(theirs, version=4)
    write(configuration(*files), tmp_path / "state")  # also connects again
    assert json.loads(theirs.read_text())["provider"]["ours"]["n"] == 1
    changed_json(theirs, schema="s")
    undo("c", tmp_path / "state")
    assert json.loads(theirs.read_text()) == old | {"version": 4, "schema": "s"}
    assert not other.exists()


def test_a_new_file_that_others_wrote_into_keeps_theirs(tmp_path: Path):
    new = tmp_path / "deep" / "a.json"
    write(configuration(ConfigFile(new, "json", OURS)), tmp_path / "state")
    value = json.loads(new.read_text())
    value["provider"]["theirs"] = {"url": "y"}
    new.write_text(json.dumps(value | {"theme": "changed"}, indent=8))
    undo("c", tmp_path / "state")
    assert json.loads(new.read_text()) == {"provider": {"theirs": {"url": "y"}}}
    assert new.read_text().startswith('{\n        "')


def test_a_new_file_with_nothing_but_ours_goes(tmp_path: Path):
    new = tmp_path / "deep" / "a.json"
    write(configuration(ConfigFile(new, "json", OURS)), tmp_path / "state")
    new.write_text(json.dumps(json.loads(new.read_text())))
    undo("c", tmp_path / "state")
    assert not new.parent.exists()


def test_an_entry_of_a_list_goes_and_the_others_stay(tmp_path: Path):
    yml, js = tmp_path / "a.yaml", tmp_path / "b.json"
    js.write_text('{"models": {"openai": [{"id": "m", "url": "older"}]}}')
    files = (
        ConfigFile(yml, "yaml", ENTRY, list_key="id"),
        ConfigFile(js, "json", {"models": {"openai": ENTRY}}, list_key="id"),
    )
    write(configuration(*files), tmp_path / "state")
    yml.write_text("# mine\n" + yml.read_text() + "- id: n\n")
    value = json.loads(js.read_text())
    value["models"]["openai"].append({"id": "n"})
    js.write_text(json.dumps(value))
    undo("c", tmp_path / "state")
    assert yml.read_text() == "# mine\n- id: n\n"
    left = json.loads(js.read_text())["models"]["openai"]
    assert sorted(left, key=str) == [{"id": "m", "url": "older"}, {"id": "n"}]


def test_a_file_of_our_own_that_was_changed_is_put_away(tmp_path: Path):
    own = tmp_path / "own" / "c.json"
    write(configuration(ConfigFile(own, "json", OURS, own=True)), tmp_path / "state")
    changed_json(own, date="today")
    (done,) = undo("c", tmp_path / "state")
    assert not own.parent.exists() and done.kept is not None
    assert json.loads(done.kept.read_text())["date"] == "today"
    assert done.kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("now", [b"// comments\n{}", b"{", b"[]", b"\xff", None])
def test_a_file_that_cannot_be_read_any_more_is_left_alone(tmp_path: Path, now: bytes | None):
    theirs, other = tmp_path / "a.json", tmp_path / "b.json"
    theirs.write_bytes(OLD)
    write(configuration(merging(other), merging(theirs)), tmp_path / "state")
    if now is None:
        theirs.unlink()
    else:
        theirs.write_bytes(now)
    with pytest.raises(ConnectError, match=r"a\.json was changed.*state/c/1"):
        undo("c", tmp_path / "state")
    assert (theirs.read_bytes() if theirs.exists() else None) == now and other.exists()


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
