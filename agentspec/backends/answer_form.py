"""JSON that a model was asked for, with what models put around it: code fences, byte order marks,
special tokens that a server left in its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection

from agentspec.wire.calls import Balance
from agentspec.wire.think import CLOSE, Splitter

_FENCE = re.compile(r"\s*```(?:json|JSON)?[ \t]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_TOKENS = re.compile(r"(?:\s*(?:<\|[^<>|\s]{1,40}\|>|</s>|<eos>|<end_of_turn>))+\s*$")
_STARTS = {
    "object": "{",
    "array": "[",
    "string": '"',
    "number": "-0123456789",
    "integer": "-0123456789",
    "boolean": "tf",
    "null": "n",
}
_CLOSES = re.compile(r"[}\]]")


def unwrapped(text: str) -> str:
    """The text without what stands around its JSON, reasoning that was never opened too."""
    bare = _TOKENS.sub("", text.rpartition(CLOSE)[2].lstrip("\ufeff"))
    fenced = _FENCE.fullmatch(bare)
    return fenced.group(1) if fenced is not None else bare


class JsonGate:
    """Holds the text of one streamed answer back that isn't JSON: from its beginning, where it
    begins as none of its types can (it may be mended, or asked for again), or from the end of the
    value on.

    types: of the values that are allowed; mend: brings a whole text into the form, where it can.
    """

    def __init__(self, types: Collection[str], mend: Callable[[str], str]):
        self._starts = frozenset("".join(_STARTS[name] for name in types))
        self._mend = mend
        self._think = Splitter()
        self._held = ""
        self._begun = self._closed = False
        self._balance = Balance()

    def feed(self, piece: str) -> tuple[str, str]:
        """(reasoning, text) that may go on."""
        reasoning, text = self._think.feed(piece)
        return reasoning, self._pass(text)

    def end(self) -> str:
        """What is still held, at the answer's end: mended, or as it is."""
        passed = self._pass(self._think.end()[1])
        held, self._held = self._held, ""
        if not self._begun:
            return self._mend(held)
        return passed + _TOKENS.sub("", held)

    def _pass(self, text: str) -> str:
        text, self._held = self._held + text, ""
        if not self._begun and text.lstrip()[:1] in self._starts:
            self._begun = True
        if not self._begun or self._closed:
            self._held = text
            return ""
        at = 0
        for found in _CLOSES.finditer(text):
            piece, at = text[at : found.end()], found.end()
            if self._balance.feed(piece):
                self._closed, self._held = True, text[at:]
                return text[:at]
        self._balance.feed(text[at:])
        return text
