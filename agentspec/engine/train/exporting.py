"""``agentspec draft export``: a trained draft in another layout, for other people's tools."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .config import DraftToml
from .errors import TrainError
from .export import read_draft, write_deepspec, write_speculators
from .target import Target
from .trainer import EXPORT


def export(
    toml: DraftToml, layout: str, to: Path, *, int8: bool, embeddings: bool
) -> dict[str, Any]:
    """Write the method's draft to ``to``. Raises ``TrainError`` where there is none."""
    draft = read_draft(toml.run / EXPORT)
    if layout == "speculators":
        if int8 or embeddings:
            raise TrainError("--int8 and --embeddings are of the deepspec layout")
        head = None if draft.spec.draft_vocab is None else Target.open(toml).tables.head
        size = write_speculators(to, draft, head)
    else:
        tables = Target.open(toml).tables if embeddings else None
        size = write_deepspec(to, draft, int8=int8, tables=tables)
    return {"layout": layout, "path": str(to), "bytes": size}
