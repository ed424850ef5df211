"""Writing a configuration with a backup, and undoing it: byte for byte if nobody wrote since.

What was there lies in ``STATE/CLIENT/``: a manifest, and a numbered copy of each file. The
manifest is written before the first file, so that a write that was cut short can be undone too.
A file that was changed since (clients do) loses our settings only; one of our own is put away.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from .base import ConfigFile, Configuration, ConnectError, Kind
from .merge import merged
from .unmerge import taken_out


class _Entry(msgspec.Struct):
    """path: resolved. backup: name of the copy; None: there was no file. written: sha256.
    kind, settings, own, list_key: of the ``ConfigFile``; kind is None in manifests of old."""

    path: str
    backup: str | None
    written: str
    kind: Kind | None = None
    settings: Any = None
    own: bool = False
    list_key: str | None = None

    @property
    def file(self) -> ConfigFile:
        assert self.kind is not None
        return ConfigFile(Path(self.path), self.kind, self.settings, self.own, self.list_key)


class _Manifest(msgspec.Struct):
    files: list[_Entry]
    folders: list[str]
    v: int = 1


@dataclass(frozen=True, slots=True)
class Undone:
    """kept: a copy of what the file had become, where it was ours and had been changed."""

    path: Path
    kept: Path | None = None


@dataclass(frozen=True, slots=True)
class _Plan:
    file: ConfigFile
    path: Path
    old: bytes | None
    new: bytes


def write(configuration: Configuration, state: Path) -> list[Path]:
    """Install the files; returns those whose bytes changed.

    A client that is connected already is undone first. Nothing is written unless all of it can be.
    Raises ``ConnectError`` for a file that holds something else than expected.
    """
    if _manifest_path(state, configuration.client).exists():
        undo(configuration.client, state)
    plans = [_plan(file) for file in configuration.files]
    folder = state / configuration.client
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    entries, folders = [], []
    for number, plan in enumerate(plans):
        backup = None if plan.old is None else str(number)
        if plan.old is not None:
            _replace(folder / str(number), plan.old)
        file = plan.file
        about = (file.kind, file.settings, file.own, file.list_key)
        entries.append(_Entry(str(plan.path), backup, _sha256(plan.new), *about))
        folders += [str(p) for p in plan.path.parents if not p.exists() and str(p) not in folders]
    manifest = _Manifest(entries, sorted(folders, key=len, reverse=True))
    _replace(_manifest_path(state, configuration.client), msgspec.json.encode(manifest))
    for plan in plans:
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        _replace(plan.path, plan.new)
    return [plan.path for plan in plans if plan.new != plan.old]


def undo(client: str, state: Path) -> list[Undone]:
    """Put back what was there before ``write``. Raises ``ConnectError``, and changes nothing, where
    nothing was written or our settings can't be told from what a file has become."""
    manifest = _manifest(state, client)
    folder = state / client
    olds = [None if e.backup is None else (folder / e.backup).read_bytes() for e in manifest.files]
    pairs = list(zip(manifest.files, olds, strict=True))
    news = [_without_ours(entry, old, folder) for entry, old in pairs]
    done = []
    for (entry, old), new in zip(pairs, news, strict=True):
        path = Path(entry.path)
        kept = _put_away(path, state / "changed" / client) if _own_changed(entry, old) else None
        if new is None:
            path.unlink(missing_ok=True)
        elif new != _bytes(path):
            _replace(path, new)
        done.append(Undone(path, kept))
    for name in manifest.folders:
        if Path(name).is_dir() and not any(Path(name).iterdir()):
            Path(name).rmdir()
    shutil.rmtree(folder)
    return done


def _without_ours(entry: _Entry, old: bytes | None, folder: Path) -> bytes | None:
    """What the file should hold now; None: there should be none."""
    now = _bytes(Path(entry.path))
    if now == old or (now is not None and _sha256(now) == entry.written) or entry.own:
        return old
    try:
        if now is None or entry.kind is None:
            raise ConnectError("")
        text = taken_out(entry.file, None if old is None else old.decode(), now.decode())
    except (ConnectError, UnicodeDecodeError) as error:
        copy = f"; what it was is in {folder / entry.backup}" if entry.backup else ""
        raise ConnectError(
            f"{entry.path} was changed since it was written: take the settings out by hand"
            f"{copy}. Delete {folder} to forget about it. {error}".rstrip()
        ) from None
    return None if text is None else text.encode()


def _own_changed(entry: _Entry, old: bytes | None) -> bool:
    now = _bytes(Path(entry.path))
    return entry.own and now not in (None, old) and _sha256(now or b"") != entry.written


def _put_away(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    shutil.copy2(path, folder / path.name)
    return folder / path.name


def environment_file(configuration: Configuration, own: Path) -> ConfigFile | None:
    """The environment as a file for the shell to read; None where there is none."""
    if not configuration.env:
        return None
    return ConfigFile(
        own / f"{configuration.client}.sh", "shell", configuration.exports(), own=True
    )


def _plan(file: ConfigFile) -> _Plan:
    path = file.path.resolve()
    old = _bytes(path)
    try:
        text = None if old is None else old.decode()
    except UnicodeDecodeError as error:
        raise ConnectError(f"{path} is not UTF-8: {error}") from None
    return _Plan(file, path, old, merged(file, text).encode())


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.is_file() else None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _manifest_path(state: Path, client: str) -> Path:
    return state / client / "manifest.json"


def _manifest(state: Path, client: str) -> _Manifest:
    try:
        return msgspec.json.decode(_manifest_path(state, client).read_bytes(), type=_Manifest)
    except FileNotFoundError:
        raise ConnectError(f"nothing was written for {client}: there is nothing to undo") from None


def _replace(path: Path, data: bytes) -> None:
    """Set a file's bytes at once; the mode of one that is there stays, a new one is private."""
    mode = path.stat().st_mode & 0o7777 if path.exists() else 0o600
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as out:
            out.write(data)
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
