"""Builds and loads the CPU library: once per source hash and instruction set, cached per user.

Plain ``extern "C"`` functions through ctypes (which releases the GIL). Compiled by the system's
compiler into a temporary file and renamed into the cache, so that two processes starting at once
cannot meet a half-written library and no lock can go stale. No -ffast-math (it would set
flush-to-zero for the whole process) and no -march=native: the instruction set is chosen here.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SOURCES = (
    "_cpu/program.cpp",
    "_cpu/pool.h",
    "_cpu/simd.h",
    "draft_block/cpu.h",
    "linear_q/cpu.h",
    "paged_attention/cpu.h",
    "rms_norm/cpu.h",
    "rope/cpu.h",
    "silu_mul/cpu.h",
)
COMMON = ["-O3", "-std=c++17", "-fPIC", "-shared", "-pthread", "-ffp-contract=off", "-w"]
_AVX512 = [
    *("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512vnni"),
    *("-mavx2", "-mfma", "-mf16c"),
]
ISA_FLAGS = {
    "avx512bf16": [*_AVX512, "-mavx512bf16"],
    "avx512vnni": _AVX512,
    "avx2": ["-mavx2", "-mfma", "-mf16c"],
    "portable": [],
}
_NEEDS_AVX512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni"}
_NEEDS = {
    "avx512bf16": _NEEDS_AVX512 | {"avx512_bf16"},
    "avx512vnni": _NEEDS_AVX512,
    "avx2": {"avx2", "fma", "f16c"},
    "portable": set(),
}


class Unavailable(RuntimeError):
    """The library can be neither found nor built here; the message says why in one line."""


def runs_here(isa: str) -> bool:
    """Whether this processor has the instruction set."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    line = next((row for row in text.splitlines() if row.startswith("flags")), "")
    return set(line.split()) >= _NEEDS[isa]


def best_isa() -> str:
    """The widest instruction set that this processor has."""
    return next(isa for isa in _NEEDS if runs_here(isa))


def library_path(cache: Path, isa: str) -> Path:
    """Where the library of these sources and this instruction set lies (or will lie)."""
    digest = hashlib.sha256(" ".join(COMMON + ISA_FLAGS[isa]).encode())
    for name in SOURCES:
        digest.update((ROOT / name).read_bytes())
    return cache / f"agentspec-cpu-{isa}-{digest.hexdigest()[:16]}.so"


def build(cache: Path, isa: str) -> Path:
    """The compiled library, compiling it when the cache has none. Raises ``Unavailable``."""
    path = library_path(cache, isa)
    if path.exists():
        return path
    compiler = next((c for c in ("c++", "g++", "clang++") if shutil.which(c)), None)
    if compiler is None:
        raise Unavailable("no C++ compiler was found (c++, g++ or clang++)")
    cache.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=cache, suffix=".so")
    os.close(handle)
    command = [compiler, *COMMON, *ISA_FLAGS[isa], "-o", temporary, str(ROOT / SOURCES[0])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            lines = done.stderr.strip().splitlines() or ["no message"]
            raise Unavailable(f"{compiler} failed: {lines[0]}")
        os.replace(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return path


def load(cache: Path, isa: str | None = None) -> ctypes.CDLL:
    """The library for ``isa`` (None: the best one). Raises ``Unavailable``."""
    library = ctypes.CDLL(str(build(cache, isa or best_isa())))
    library.agentspec_create.restype = ctypes.c_void_p
    library.agentspec_create.argtypes = [ctypes.c_int]
    library.agentspec_destroy.argtypes = [ctypes.c_void_p]
    library.agentspec_isa.restype = ctypes.c_char_p
    library.agentspec_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
    return library
