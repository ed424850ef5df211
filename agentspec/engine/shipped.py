"""The drafts that lie in the package, each with its training record, and which one is the default.

Read next: ``drafts.py`` (how one is loaded), docs/drafts.md.
"""

from __future__ import annotations

from pathlib import Path

from .draft.draft_file import read_config
from .draft.target import TargetFacts

FOLDER = Path(__file__).parents[1] / "drafts"
DEFAULT = "dspark"


def shipped(folder: Path | None = None) -> dict[str, Path]:
    """Name -> folder of each."""
    return {
        path.parent.name: path.parent for path in sorted((folder or FOLDER).glob("*/config.json"))
    }


def trained_on(folder: Path | None = None) -> list[Path]:
    """Hashes of the prompts that they were trained on (``bench/compare/overlap.py``)."""
    return sorted((folder or FOLDER).glob("*.runs"))


def default_for(target: TargetFacts, folder: Path | None = None) -> Path | None:
    """The default draft, where it was made for these weights in this arithmetic; else None."""
    path = shipped(folder).get(DEFAULT)
    if path is None:
        return None
    made_for = read_config(path).get("agentspec", {}).get("target", {})
    if made_for.get("format") != target.format or target.weights_id is None:
        return None
    return path if made_for.get("weights_id") == target.weights_id() else None
