"""The model's chat template, and the guard that keeps special tokens out of what people write.

A template is Jinja that came with the weights, so it runs in a sandbox that can change nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Template, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.nodes import Node
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from .model.errors import TokenizerError

_STAND_INS = range(0xF0000, 0xFFFFE)
"""A private-use plane of Unicode: characters without a meaning of their own."""
_FIELDS = frozenset(
    {
        *("role", "content", "reasoning_content", "tool_calls", "tool_call_id", "id", "type"),
        *("function", "name", "arguments", "description", "parameters", "properties", "required"),
        *("items", "enum", "anyOf", "oneOf", "allOf", "$defs", "$ref", "additionalProperties"),
    }
)
"""Keys that templates look up."""


class ChatTemplate:
    """A compiled template; what it may call is what Hugging Face's templates expect."""

    def __init__(self, source: str | None, variables: Mapping[str, str]):
        """variables: bos_token and the like. Raises ``TokenizerError``."""
        if not source:
            raise TokenizerError("the model has no chat template")
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation]
        )
        environment.filters["tojson"] = _to_json
        environment.globals.update(
            raise_exception=_refuse, strftime_now=lambda form: datetime.now().strftime(form)
        )
        self._variables = dict(variables)
        try:
            self._template: Template = environment.from_string(source)
        except TemplateError as error:
            raise TokenizerError(f"the chat template cannot be read: {error}") from None

    def render(
        self,
        turns: Sequence[Mapping[str, Any]],
        add_generation_prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """The prompt's text. Raises ``TokenizerError`` with the template's own words."""
        shown = {"tools": tools} if tools else {}
        try:
            return self._template.render(
                messages=turns,
                add_generation_prompt=add_generation_prompt,
                **self._variables,
                **shown,
            )
        except (TemplateError, TypeError, ValueError) as error:
            raise TokenizerError(f"the chat template refuses the turns: {error}") from None


class _Generation(Extension):
    """``{% generation %}`` .. ``{% endgeneration %}``: marks what a model is trained on; no more
    than what is inside it here."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any, ensure_ascii: bool = False, indent: int | None = None, **options: Any
) -> str:
    """JSON as Hugging Face's templates expect it: not escaped for HTML, nor for ASCII unless they
    ask for it."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


class Guard:
    """Hides spelled special tokens from the template's output, and finds those it placed itself.

    A spelling inside a turn is replaced by one stand-in character before rendering and put back as
    plain text afterwards. The outermost characters of a text are hidden too where they could become
    a special token together with what the template puts beside them.
    """

    def __init__(self, specials: Mapping[str, int]):
        """specials: spelling -> id."""
        self._ids = dict(specials)
        longest_first = sorted(specials, key=len, reverse=True)
        # An empty alternation would match everywhere; (?!) matches nowhere.
        self._any = re.compile("|".join(map(re.escape, longest_first)) or "(?!)")
        self._heads = tuple({s[:n] for s in specials for n in range(1, len(s))})
        self._tails = tuple({s[-n:] for s in specials for n in range(1, len(s))})

    def protect(self, turns: Sequence[Any]) -> tuple[list[Any], Callable[[str], str]]:
        """A copy of ``turns`` without any special spelling, and what undoes it in rendered text.

        Clients write keys as well, those of schemas and arguments: only the names that templates
        know are left alone.
        """
        written = set("".join(_strings(turns)))
        free = (chr(code) for code in _STAND_INS if chr(code) not in written)
        stand_ins: dict[str, str] = {}

        def hide(text: str) -> str:
            if text not in stand_ins:
                stand_ins[text] = next(free)
            return stand_ins[text]

        def guard(text: str) -> str:
            text = self._any.sub(lambda found: hide(found.group()), text)
            if text.endswith(self._heads):
                text = text[:-1] + hide(text[-1])
            if text.startswith(self._tails):
                text = hide(text[0]) + text[1:]
            return text

        guarded = _map_strings(turns, guard)
        table = {ord(stand_in): text for text, stand_in in stand_ins.items()}
        return guarded, lambda text: text.translate(table)

    def split(self, rendered: str) -> Iterator[tuple[str, int | None]]:
        """``rendered`` in order as plain pieces (text, None) and special tokens (spelling, id)."""
        end = 0
        for found in self._any.finditer(rendered):
            if found.start() > end:
                yield rendered[end : found.start()], None
            yield found.group(), self._ids[found.group()]
            end = found.end()
        if end < len(rendered):
            yield rendered[end:], None


def _strings(value: Any) -> Iterator[str]:
    """Every string inside plain data, keys too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield key
            yield from _strings(item)
    elif isinstance(value, Sequence):
        for item in value:
            yield from _strings(item)


def _map_strings(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of plain data with every string changed, keys too but for templates' own."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {
            key if key in _FIELDS else change(key): _map_strings(item, change)
            for key, item in value.items()
        }
    if isinstance(value, Sequence):
        return [_map_strings(item, change) for item in value]
    return value
