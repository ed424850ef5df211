"""Where the data folders of the distribution lie: grammars and migrations."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parent


def data_dir(name: str) -> Path:
    """The folder ``grammars`` or ``migrations``: the installed copy, else the checkout's.

    Raises ``FileNotFoundError`` when the distribution carries neither.
    """
    for folder in (_PACKAGE / f"_{name}", _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"agentspec is installed without its '{name}' folder")


def user_cache_dir() -> Path:
    """Per-user cache: weights, compiled kernels, cost curves. Not created here."""
    import os

    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "agentspec"


def user_dir(variable: str, default: str | Path, home: Path | None = None) -> Path:
    """The folder that an environment variable names, else ``default`` (below ``home``)."""
    import os

    return Path(os.environ.get(variable) or (home or Path.home()) / default)
