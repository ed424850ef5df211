"""Text to token ids and back, and a conversation to a prompt by the model's own template.

Read next: ``model/vocabulary.py`` (where it comes from), ``chat_template.py`` (the template).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as HfTokenizer

from agentspec.toolcall.detect import UNKNOWN
from agentspec.toolcall.format import ToolFormat
from agentspec.toolcall.native import Native, probe

from .chat_template import ChatTemplate, Guard
from .model.errors import TokenizerError
from .model.vocabulary import Vocabulary, from_folder, from_gguf


class Tokenizer:
    """The tokenizer of one model.

    vocab_size: the model's, padding included. token_bytes: the bytes of every id; b"" of an id that
    has no text. special_ids: control tokens, never text. eos_ids: tokens that end an answer.
    hf: the tokenizer underneath, which reads special tokens spelled in text. template_source: the
    chat template's text, if there is one.
    """

    def __init__(self, vocabulary: Vocabulary):
        self.hf: HfTokenizer = vocabulary.hf
        self.vocab_size = vocabulary.size
        self.token_bytes: list[bytes] = vocabulary.token_bytes
        self.special_ids: frozenset[int] = frozenset(vocabulary.specials.values())
        self.eos_ids: frozenset[int] = vocabulary.eos_ids
        self._guard = Guard(vocabulary.specials)
        self._plain = HfTokenizer.from_str(self.hf.to_str())
        self._plain.encode_special_tokens = True
        self.template_source = vocabulary.template
        self._variables = vocabulary.template_variables

    @classmethod
    def from_gguf(cls, path: Path) -> Tokenizer:
        """Out of a GGUF file. Raises ``TokenizerError`` or ``WeightsError``."""
        return cls(from_gguf(path))

    @classmethod
    def from_folder(cls, path: Path) -> Tokenizer:
        """Out of a folder with a tokenizer.json. Raises ``TokenizerError``."""
        return cls(from_folder(path))

    @classmethod
    def load(cls, path: Path) -> Tokenizer:
        """Out of a GGUF file or a model's folder. Raises ``TokenizerError``."""
        return cls.from_folder(path) if path.is_dir() else cls.from_gguf(path)

    @cached_property
    def template(self) -> ChatTemplate:
        """The compiled chat template. Raises ``TokenizerError`` when there is none or a bad one."""
        return ChatTemplate(self.template_source, self._variables)

    def native(self, fmt: ToolFormat) -> Native | None:
        """How the template takes tools and calls, where it shows them in ``fmt`` by itself."""

        def render(turns: Sequence[Any], tools: Sequence[Any] | None) -> str:
            try:
                return self.template.render(turns, True, tools)
            except TokenizerError as error:
                raise ValueError(str(error)) from None

        return None if fmt.name == UNKNOWN else probe(render, fmt)

    def encode(self, text: str, special: bool = False) -> list[int]:
        """Ids of ``text``, nothing added; ``special``: spelled special tokens become their ids."""
        tokenizer = self.hf if special else self._plain
        return tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ``ids``, special tokens spelled out; what is not UTF-8 becomes U+FFFD."""
        return b"".join(self.token_bytes[i] for i in ids).decode("utf-8", "replace")

    def render(
        self,
        turns: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] = (),
    ) -> list[int]:
        """Ids of a conversation ({"role", "content"} each) under the model's chat template.

        tools: for a template that shows them itself; their turns then hold calls as it takes them.

        The ids of the whole rendered string, except that a special token spelled inside a turn is
        text: only the template itself can place one. Raises ``TokenizerError`` when the template
        refuses the turns.
        """
        guarded, restore = self._guard.protect([*turns, *tools])
        shown = guarded[len(turns) :]
        rendered = self.template.render(guarded[: len(turns)], add_generation_prompt, shown)
        ids: list[int] = []
        for piece, special in self._guard.split(rendered):
            ids.extend([special] if special is not None else self.encode(restore(piece)))
        return ids
