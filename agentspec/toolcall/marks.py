"""A format's marks that are special tokens of a model: by token id, not by their letters.

Between the engine, which commits tokens, and the parser, which reads text, such a token travels as
one lone surrogate: no text that was decoded holds one, so the letters alone never pass for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .format import ToolFormat
from .special import strings_of

_SURROGATES = range(0xDC00, 0xDC40)
_FRAME = (
    *("open", "close", "list_open", "list_close", "separator", "also_open", "also_close"),
    *("head_template", "tail_template", "id_open", "reasoning", "channels"),
)
_INNER = ("tags", "spelling")


@dataclass(frozen=True, slots=True)
class Marks:
    """ids: spelling -> token id. characters: token id -> what stands for it in the text."""

    ids: Mapping[str, int] = field(default_factory=dict)
    characters: Mapping[int, str] = field(default_factory=dict)

    @classmethod
    def of(cls, fmt: ToolFormat, special: Mapping[str, int]) -> Marks:
        """Those of ``special`` (spelling -> id) that ``fmt`` has in its marks.

        None where some are inside of arguments (their tags or quotes): the format is then read by
        letters throughout.
        """
        texts = "\n".join(strings_of([getattr(fmt, name) for name in _FRAME]))
        inner = "\n".join(strings_of([getattr(fmt, name) for name in _INNER]))
        if any(s in inner for s in special if s):
            return cls()
        used = sorted(s for s in special if s and s in texts)[: len(_SURROGATES)]
        ids = {s: special[s] for s in used}
        return cls(ids, {ids[s]: chr(c) for s, c in zip(used, _SURROGATES, strict=False)})

    def pieces(self, text: str) -> Iterator[tuple[str, bool]]:
        """The engine's text as (a text, whether it is one special token's spelling)."""
        spelled = {self.characters[id]: spelling for spelling, id in self.ids.items()}
        for piece in _SURROGATE.split(text):
            if piece:
                yield spelled.get(piece, piece), piece in spelled

    def marked(self, text: str) -> str:
        """A text of the format as the engine's text has it."""
        for spelling in sorted(self.ids, key=len, reverse=True):
            text = text.replace(spelling, self.characters[self.ids[spelling]])
        return text


_SURROGATE = re.compile("([\udc00-\udc3f])")


def special_spellings(
    token_bytes: Any, special_ids: frozenset[int], eos_ids: frozenset[int]
) -> dict[str, int]:
    """spelling -> id of the special tokens that do not end an answer."""
    return {
        token_bytes[token].decode("utf-8", "replace"): token
        for token in sorted(special_ids - eos_ids)
        if token < len(token_bytes) and token_bytes[token]
    }
