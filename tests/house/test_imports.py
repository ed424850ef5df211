"""Which room may import which: an ast walk over all imports, and processes that lack libraries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import Module, imports, modules, parse

# room: the rooms it may import beside itself. The leaves (settings, resources) are open to all.
LEAVES = {
    "settings",
    "settings_drafts",
    "settings_routing",
    "settings_scheduling",
    "settings_pool",
    "settings_telemetry",
    "logs",
    "tracing",
    "resources",
    "pauses",
    "jsontext",
}
ARROWS: dict[str, set[str]] = {
    "wire": set(),
    "toolcall": {"wire"},
    "engine": {"wire", "toolcall", "agentspec_kernels"},
    "backends": {"wire", "toolcall"},
    "routing": {"wire", "toolcall", "backends"},
    "store": {"wire"},
    "gateway": {"wire", "toolcall", "backends", "routing", "store"},
    "dashboard": {"store"},
    "connect": set(),
    "plan": set(),
    "agentspec_kernels": set(),
    "settings": set(),
    "settings_drafts": set(),
    "settings_routing": set(),
    "settings_pool": set(),
    "settings_telemetry": set(),
    "logs": set(),
    "tracing": set(),
    "resources": set(),
    "pauses": set(),
    "jsontext": set(),
    "agentspec": set(),
}
# Composition: what starts and measures everything.
COMPOSITION = {"cli", "__main__", "supervisor", "bench"}

# library: the only rooms (or modules) that may import it.
LIBRARIES: dict[str, tuple[str, ...]] = {
    "torch": ("agentspec.engine", "agentspec_kernels", "agentspec.bench"),
    "triton": ("agentspec_kernels",),
    "transformers": ("agentspec.bench",),
    "llguidance": ("agentspec.engine", "agentspec.bench"),
    "outlines_core": ("agentspec.engine", "agentspec.bench"),
    "tokenizers": ("agentspec.engine", "agentspec.bench"),
    "sqlalchemy": ("agentspec.store", "agentspec.bench"),
    "alembic": ("agentspec.store",),
    "litellm": ("agentspec.backends",),
    "opentelemetry": ("agentspec.gateway.otlp", "agentspec.gateway.telemetry"),
    "fastapi": ("agentspec.gateway", "agentspec.dashboard", "agentspec.engine.server"),
    "uvicorn": ("agentspec.gateway", "agentspec.engine.server", "agentspec.cli", "agentspec.bench"),
}


def _inside(name: str, prefixes: tuple[str, ...]) -> bool:
    return any(
        name == prefix or name.startswith((prefix + ".", prefix + "_")) for prefix in prefixes
    )


def violations(module: Module) -> list[str]:
    """What a module imports against the tables, as ``path:line imports name``."""
    wrong = []
    for name, line in imports(module):
        top, _, rest = name.partition(".")
        room = rest.split(".")[0] if top == "agentspec" else top
        ours = top in {"agentspec", "agentspec_kernels"} and room and room != "__version__"
        allowed = ARROWS.get(module.room)
        if ours and module.room not in COMPOSITION:
            assert allowed is not None, f"{module.path}: no row for room '{module.room}'"
            if room not in allowed | LEAVES | {module.room}:
                wrong.append(f"{module.path}:{line} imports {name}")
        elif top in LIBRARIES and not _inside(module.name, LIBRARIES[top]):
            wrong.append(f"{module.path}:{line} imports {name}")
    return wrong


def test_arrows():
    assert [line for module in modules() for line in violations(module)] == []


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("agentspec/engine/planted.py", "from agentspec.gateway.app import create_app"),
        ("agentspec/engine/planted.py", "from ..store import writer"),
        ("agentspec/gateway/planted.py", "def f():\n    import torch.nn"),
        ("agentspec/gateway/planted.py", "from agentspec.engine import core"),
        ("agentspec/store/planted.py", "import agentspec.gateway"),
        ("agentspec/dashboard/planted.py", "from sqlalchemy import select"),
        ("agentspec_kernels/planted.py", "from agentspec import wire"),
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, where: str, source: str):
    path = tmp_path / where
    path.parent.mkdir(parents=True)
    path.write_text(source + "\n")
    assert len(violations(parse(path, tmp_path))) == 1


_WALK = """
import importlib, pkgutil, sys
for name in {blocked!r}:
    sys.modules[name] = None
for room in {rooms!r}:
    package = importlib.import_module("agentspec." + room)
    for info in pkgutil.walk_packages(getattr(package, "__path__", []), package.__name__ + "."):
        if not info.name.startswith({skipped!r}):
            importlib.import_module(info.name)
{then}
"""
ENGINE_ONLY = ["torch", "triton", "transformers", "numpy", "gguf", "safetensors", "llguidance"]


def _run(blocked: list[str], rooms: list[str], skipped: tuple[str, ...] = (), then: str = ""):
    code = _WALK.format(blocked=blocked, rooms=rooms, skipped=skipped, then=then)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


def test_the_gateway_needs_nothing_of_the_engine(tmp_path: Path):
    """Every module of the base install, and the application itself, without torch or litellm."""
    rooms = ["wire", "toolcall", "backends", "routing", "store", "gateway", "dashboard", "cli"]
    then = f"""
from agentspec.gateway.app import create_app
from agentspec.settings import Settings, with_defaults
create_app(with_defaults(Settings(data_dir={str(tmp_path)!r})))
assert not any(m.startswith(("agentspec.engine", "agentspec_kernels")) for m in sys.modules)
"""
    done = _run(
        [*ENGINE_ONLY, "outlines", "outlines_core", "litellm", "opentelemetry.sdk"],
        rooms,
        skipped=("agentspec.gateway.otlp",),
        then=then,
    )
    assert done.returncode == 0, done.stderr


def test_the_engine_needs_neither_web_nor_database():
    """Every module of the engine but its server, without the gateway's libraries."""
    blocked = ["fastapi", "starlette", "uvicorn", "sqlalchemy", "alembic", "litellm", "aiohttp"]
    done = _run(blocked, ["engine"], skipped=("agentspec.engine.server",))
    assert done.returncode == 0, done.stderr


def test_kernels_import_without_triton():
    """Their public package picks a backend on the first call, not at import."""
    code = "import sys; sys.modules['triton'] = None; import agentspec_kernels"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
