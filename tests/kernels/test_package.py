"""What importing the kernels loads."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "barred"),
    (
        ("agentspec_kernels", ("torch", "triton", "agentspec")),
        ("agentspec_kernels.paged_attention, agentspec_kernels.gumbel", ("triton", "agentspec")),
    ),
)
def test_import_loads_neither_triton_nor_the_engine(module: str, barred: tuple[str, ...]) -> None:
    code = f"import sys, {module}; print([m for m in {barred} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
