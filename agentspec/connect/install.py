"""Writing a configuration with a backup, and undoing it byte for byte.

What was there lies in ``STATE/CLIENT/``: a manifest, and a numbered copy of each file. The
manifest is written before the first file, so that a write that was cut short can be undone too.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from .base import ConfigFile, Configuration, ConnectError
from .merge import merged


class _Entry(msgspec.Struct):
    """path: resolved. backup: name of the copy; None: there was no file. written: sha256."""

    path: str
    backup: str | None
    written: str


class _Manifest(msgspec.Struct):
    files: list[_Entry]
    folders: list[str]
    v: int = 1


@dataclass(frozen=True, slots=True)
class _Plan:
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
        entries.append(_Entry(str(plan.path), backup, _sha256(plan.new)))
        folders += [str(p) for p in plan.path.parents if not p.exists() and str(p) not in folders]
    manifest = _Manifest(entries, sorted(folders, key=len, reverse=True))
    _replace(_manifest_path(state, configuration.client), msgspec.json.encode(manifest))
    for plan in plans:
        plan.path.parent.mkdir(parents=True, exist_ok=True)
        _replace(plan.path, plan.new)
    return [plan.path for plan in plans if plan.new != plan.old]


def undo(client: str, state: Path) -> list[Path]:
    """Put back what was there before ``write``; returns the files. Raises ``ConnectError``, and
    changes nothing, where nothing was written or a file was changed since."""
    manifest = _manifest(state, client)
    folder = state / client
    olds = [None if e.backup is None else (folder / e.backup).read_bytes() for e in manifest.files]
    for entry, old in zip(manifest.files, olds, strict=True):
        now = _bytes(Path(entry.path))
        if now != old and (now is None or _sha256(now) != entry.written):
            copy = f"; what it was is in {folder / entry.backup}" if entry.backup else ""
            raise ConnectError(
                f"{entry.path} was changed since it was written: take the settings out by hand"
                f"{copy}. Delete {folder} to forget about it."
            )
    for entry, old in zip(manifest.files, olds, strict=True):
        if old is None:
            Path(entry.path).unlink(missing_ok=True)
        else:
            _replace(Path(entry.path), old)
    for name in manifest.folders:
        if Path(name).is_dir() and not any(Path(name).iterdir()):
            Path(name).rmdir()
    shutil.rmtree(folder)
    return [Path(entry.path) for entry in manifest.files]


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
    return _Plan(path, old, merged(file, text).encode())


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
