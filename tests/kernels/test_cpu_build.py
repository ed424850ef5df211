"""Building the CPU library: cached, atomic, and one clear line where it can't be built."""

import subprocess
import sys
from pathlib import Path

import pytest
from agentspec_kernels._cpu import build

PORTABLE = "portable"
QUICK = ["-O0", *build.COMMON[1:]]


@pytest.fixture(autouse=True)
def quick_compiler(monkeypatch):
    monkeypatch.setattr(build, "COMMON", QUICK)


def test_the_second_load_compiles_nothing(tmp_path, monkeypatch):
    first = build.build(tmp_path, PORTABLE)
    stamp = first.stat().st_mtime_ns
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    assert build.build(tmp_path, PORTABLE) == first
    assert first.stat().st_mtime_ns == stamp
    assert build.load(tmp_path, PORTABLE).agentspec_isa() == b"portable"


def test_two_processes_at_once_leave_one_whole_library(tmp_path):
    root = str(Path(build.__file__).parents[2])
    code = (
        f"import sys; sys.path.insert(0, {root!r})\n"
        "from pathlib import Path\nfrom agentspec_kernels._cpu import build\n"
        f"build.COMMON = {QUICK!r}\n"
        f"print(build.load(Path({str(tmp_path)!r}), 'portable').agentspec_version())"
    )
    running = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) for _ in range(2)
    ]
    assert [process.communicate()[0].strip() for process in running] == [b"1", b"1"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".so"]


def test_no_compiler_is_one_clear_line(tmp_path, monkeypatch):
    monkeypatch.setattr(build.shutil, "which", lambda name: None)
    with pytest.raises(build.Unavailable, match=r"no C\+\+ compiler"):
        build.build(tmp_path, PORTABLE)


def test_a_compiler_error_is_one_line_and_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setitem(build.ISA_FLAGS, PORTABLE, ["--no-such-flag"])
    with pytest.raises(build.Unavailable) as caught:
        build.build(tmp_path, PORTABLE)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_every_header_that_is_included_is_part_of_the_hash():
    included = {
        str((path.parent / line.split('"')[1]).resolve().relative_to(build.ROOT))
        for path in (build.ROOT / name for name in build.SOURCES)
        for line in path.read_text().splitlines()
        if line.startswith('#include "')
    }
    assert included <= set(build.SOURCES)


def test_the_chosen_instruction_set_runs_here():
    assert build.runs_here(build.best_isa())
    assert build.runs_here(PORTABLE)
