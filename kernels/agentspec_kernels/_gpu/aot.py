"""Compiling the kernels ahead of time, without a GPU, and what the compiler says of each.

``python -m agentspec_kernels._gpu.aot [--arch 80,90,100] [--json FILE]`` prints a line a kernel and
architecture. Must run without TRITON_INTERPRET (a kernel is then no compiler's input).
"""

from __future__ import annotations

import argparse
import importlib
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ARCHS = (80, 90, 100)
OPS = (
    "rms_norm",
    "rope",
    "silu_mul",
    "paged_attention",
    "kv_move",
    "accept",
    "linear",
    "grouped_linear",
    "markov_step",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One specialisation. signature: Triton's type of each argument; constants: the constexprs.

    aligned: integers that 16 divides, as Triton finds them at a call; pointers always are.
    warps: of one program.
    """

    name: str
    kernel: Any
    signature: Mapping[str, str]
    constants: Mapping[str, Any] = field(default_factory=dict)
    aligned: Sequence[str] = ()
    warps: int = 4


def cases(ops: Sequence[str] = OPS) -> Iterator[Case]:
    """The specialisations that each op's ``kernel.py`` names in its ``cases``."""
    for op in ops:
        yield from importlib.import_module(f"agentspec_kernels.{op}.kernel").cases()


def compile_case(case: Case, arch: int) -> dict[str, Any]:
    """Compile for ``sm_<arch>``; registers a thread, spilled bytes, shared bytes a program.

    Raises what Triton raises where the kernel does not compile.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from .launch import FUSION

    signature = {**case.signature, **dict.fromkeys(case.constants, "constexpr")}
    ordered = {name: signature[name] for name in case.kernel.arg_names}
    aligned = [
        number
        for number, (name, kind) in enumerate(ordered.items())
        if kind.startswith("*") or name in case.aligned
    ]
    attributes = {(number,): [["tt.divisibility", 16]] for number in aligned}
    source = ASTSource(case.kernel, ordered, dict(case.constants), attributes)
    options = {"num_warps": case.warps, **FUSION}
    built = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    usage = resources(built.asm["cubin"])
    return {"kernel": case.name, "arch": f"sm_{arch}", "shared": built.metadata.shared, **usage}


def resources(cubin: bytes) -> dict[str, int]:
    """registers a thread and stack bytes (spills and local arrays) of a one-kernel cubin."""
    from triton import knobs

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(path)]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None, text
    return {"registers": int(found[1]), "stack": int(found[2])}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command. Prints a table; with ``--json`` writes ``results`` there too."""
    from triton import knobs

    parser = argparse.ArgumentParser(description="Compile every Triton kernel without a GPU.")
    parser.add_argument("--arch", default=",".join(map(str, ARCHS)))
    parser.add_argument("--ops", default=",".join(OPS))
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    if knobs.runtime.interpret:
        parser.error("TRITON_INTERPRET is set: nothing can be compiled in this process")
    rows = []
    for case in cases(options.ops.split(",")):
        for arch in map(int, options.arch.split(",")):
            rows.append(compile_case(case, arch))
            line = "{kernel:34} {arch:7} {registers:4} registers {stack:5} stack {shared:7} shared"
            sys.stdout.write(line.format(**rows[-1]) + "\n")
    if options.json is not None:
        options.json.write_text(json.dumps({"results": rows}, indent=1))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
