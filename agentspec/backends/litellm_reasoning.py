"""White space around reasoning in litellm's answers.

Where a server writes its reasoning into its text, litellm takes it out of a whole answer but not
out of a stream, and leaves the white space around it. Dropping that everywhere makes both the same.
"""

from __future__ import annotations

from dataclasses import dataclass

from .foreign import ForeignAnswer, ForeignText


@dataclass(slots=True)
class _Edges:
    """Of one choice. thought: there was reasoning; begun: more than white space of it; answered:
    the same of the text behind it. held: white space that is reasoning's only if more comes."""

    thought: bool = False
    begun: bool = False
    answered: bool = False
    held: str = ""


class Trimmed:
    """Reads one answer, whole or chunk by chunk."""

    def __init__(self) -> None:
        self._choices: dict[int, _Edges] = {}

    def read(self, answer: ForeignAnswer) -> ForeignAnswer:
        """The answer or chunk, changed in place: reasoning without white space at its ends, and
        text behind reasoning without any at its beginning."""
        for choice in answer.choices or ():
            said = choice.delta or choice.message
            if said is not None:
                _trim(said, self._choices.setdefault(choice.index, _Edges()))
        return answer


def _trim(said: ForeignText, edges: _Edges) -> None:
    told = said.reasoning_content or said.reasoning
    if told:
        text = edges.held + told if edges.begun else told.lstrip()
        kept = text.rstrip()
        edges.thought, edges.begun = True, edges.begun or bool(kept)
        edges.held = text[len(kept) :]
        said.reasoning_content, said.reasoning = kept or None, None
    if edges.thought and not edges.answered and isinstance(said.content, str):
        said.content = said.content.lstrip()
        edges.answered = bool(said.content)
