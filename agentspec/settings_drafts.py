"""Settings of the engine's drafts. Leaf module: imports no room."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta


class DraftSettings(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A draft that is loaded beside the model (docs/drafts.md).

    path: its folder; or a whole smaller model with the same tokenizer, a GGUF file or a folder.
    name: of the source; None: its method ("dspark", "eagle3", ..., "draft_model").
    head_rows: only the first so many token ids are drafted, where it brings no shortlist of its own
        (of a BPE vocabulary the frequent ones): cheaper, and a little less is accepted. None: half
        of a vocabulary of 32,768 and more; 0: all.
    candidates: tokens of each row that a Markov head looks at. branches: most tokens that follow
        the same one in a draft without Markov head; above 1 it is a tree. None: 4 for JetSpec.
    forced: what stands in a block for tokens that a grammar forced before it: "anchor": the last of
        them; "block": all. blind: draft as if there were no grammar. Both for measuring.
    bits: a weight of a block draft's layers and head, on the CPU kernels: 4 are half to read.
    """

    path: Annotated[str, Meta(min_length=1)]
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")] | None = None
    head_rows: Annotated[int, Meta(ge=0)] | None = None
    candidates: Annotated[int, Meta(ge=1, le=512)] = 128
    branches: Annotated[int, Meta(ge=1, le=16)] | None = None
    forced: Literal["anchor", "block"] = "anchor"
    blind: bool = False
    bits: Literal[8, 4] = 4
