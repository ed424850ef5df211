"""The second constraint backend: outlines-core (0.2.14 probed), a regex to a token automaton.

States are integers, so that rollback and copies are free and rows are cached by state; compiling
costs states x vocabulary. Schemas are first narrowed by ``outlines_regex`` to what outlines-core
really holds. The number of calls is bounded to one or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
from outlines_core import Index, Vocabulary
from tokenizers import Tokenizer

from agentspec.toolcall.choice import OutputSpec
from agentspec.wire.errors import InvalidRequest, InvalidSchema

from .base import ConstraintViolated
from .judging import open_object
from .outlines_regex import Unsupported, schema_regex
from .session import Grammar
from .vocab import Vocab, pack

_MAX_REGEX_CHARS = 200_000
_MAX_FORCED_BYTES = 512


class Automaton:
    """A compiled index with its caches; shared by matchers. States are ``int``."""

    def __init__(self, index: Index, vocab: Vocab, tokenizer: Tokenizer):
        self.index, self.vocab, self._tokenizer = index, vocab, tokenizer
        self.start: int = index.get_initial_state()
        self._tokens: dict[int, list[int]] = {}
        self._rows: dict[int, np.ndarray] = {}
        self._forced: dict[int, list[int]] = {}

    def tokens(self, state: int) -> list[int]:
        """Text tokens that may follow."""
        found = self._tokens.get(state)
        if found is None:
            special = self.vocab.special_ids
            allowed = self.index.get_allowed_tokens(state) or ()
            found = self._tokens[state] = [t for t in allowed if t not in special]
        return found

    def row(self, state: int) -> np.ndarray:
        """[W] int32 row of ``tokens(state)``."""
        if state not in self._rows:
            self._rows[state] = pack(self.tokens(state), self.vocab.size)
        return self._rows[state]

    def final(self, state: int) -> bool:
        return self.index.is_final_state(state)

    def forced(self, state: int) -> list[int]:
        """Canonical tokens of the text that must follow, save what later text could change."""
        if state not in self._forced:
            text, closed = self._forced_bytes(state)
            self._forced[state] = self._encode(text, closed)
        return self._forced[state]

    def _forced_bytes(self, state: int) -> tuple[bytes, bool]:
        """(forced bytes, whether the text ends after them)."""
        text = bytearray()
        while len(text) < _MAX_FORCED_BYTES and not self.final(state):
            firsts = {self.vocab.token_bytes[token][0] for token in self.tokens(state)}
            if len(firsts) != 1:
                return bytes(text), False
            byte = firsts.pop()
            following = self.index.get_next_state(state, self.vocab.single.get(byte, -1))
            if following is None:
                return bytes(text), False
            text.append(byte)
            state = following
        return bytes(text), self.final(state) and not self.tokens(state)

    def _encode(self, text: bytes, closed: bool) -> list[int]:
        if not closed:
            text = self._whole_words(text)
        try:
            ids = self._tokenizer.encode(text.decode(), add_special_tokens=False).ids
        except UnicodeDecodeError:
            return []
        same = b"".join(self.vocab.token_bytes[i] for i in ids) == text
        return ids if same else []

    def _whole_words(self, text: bytes) -> bytes:
        """``text`` without its last pre-token, which later text may extend."""
        try:
            spelled = text.decode()
        except UnicodeDecodeError as error:
            # A torn last character is cut off; a torn first one leaves nothing to encode.
            spelled = text[: error.start].decode()
        splitter = self._tokenizer.pre_tokenizer
        if splitter is None:
            return b""
        words = splitter.pre_tokenize_str(spelled)
        return spelled[: words[-1][1][0]].encode() if words else b""


class OutlinesMatcher:
    """``Matcher`` over an ``Automaton``: a stack of states."""

    __slots__ = ("_automaton", "_states")

    def __init__(self, automaton: Automaton, states: list[int] | None = None):
        self._automaton = automaton
        self._states = states or [automaton.start]

    def legal(self, token: int) -> bool:
        return self._automaton.index.get_next_state(self._states[-1], token) is not None

    def push(self, token: int) -> None:
        state = self._automaton.index.get_next_state(self._states[-1], token)
        if state is None:
            raise ConstraintViolated(f"the automaton does not allow token {token} here")
        self._states.append(state)

    def pop(self, count: int) -> None:
        assert count < len(self._states)
        if count:
            del self._states[-count:]

    def fill(self, row: np.ndarray) -> None:
        row[:] = self._automaton.row(self._states[-1])

    def forced(self) -> list[int]:
        return self._automaton.forced(self._states[-1])

    def accepting(self) -> bool:
        return self._automaton.final(self._states[-1])

    def ended(self) -> bool:
        return not self._automaton.tokens(self._states[-1])

    def copy(self) -> OutlinesMatcher:
        return OutlinesMatcher(self._automaton, list(self._states))


class OutlinesBackend:
    """Compiles output specs through one regex each."""

    name = "outlines"

    def __init__(self, vocab: Vocab, hf_tokenizer_json: str):
        self._vocab = vocab
        self._tokenizer = Tokenizer.from_str(hf_tokenizer_json)

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        pieces: dict[bytes, list[int]] = {}
        for token, piece in enumerate(self._vocab.token_bytes):
            if piece and token not in self._vocab.special_ids:
                pieces.setdefault(piece, []).append(token)
        # Raw bytes: as strings, tokens that are part of a character would collapse into one.
        return Vocabulary(min(self._vocab.eos_ids), pieces)  # type: ignore[arg-type]

    def sure(self, spec: OutputSpec) -> bool:
        """See ``factory.Backend.sure``: an automaton's size is known when it is built."""
        return False

    def compile(self, spec: OutputSpec, marks: Mapping[str, int] | None = None) -> Grammar:
        """See ``Backend.compile``. Raises ``InvalidSchema`` for all that outlines would ignore."""
        if spec.grammar is not None:
            raise InvalidRequest(
                "Invalid 'agentspec.grammar': the outlines backend has no Lark grammars.",
                param="agentspec.grammar",
                code="invalid_grammar",
            )
        unable = spec.format.encoding != "json" or spec.format.anchored or bool(marks)
        if spec.functions and unable:
            raise InvalidRequest(
                f"Invalid value for 'tools': the outlines backend cannot write calls in the format "
                f"'{spec.format.name}'.",
                param="tools",
                code="unsupported_parameter",
            )
        unchecked: list[str] = []
        calls = list(_calls(spec, unchecked))
        parts = []
        if spec.answer is not None:
            answer = spec.answer
            what = f"response_format '{answer.name}'"
            made = _regex(answer.schema, answer.param, what, None)
            parts.append(made[0])
            unchecked += [f"response_format#{path}" for path in made[1]]
        if calls:
            parts.append(_block(spec, calls))
        pattern = "|".join(f"(?:{part})" for part in parts)
        param = spec.functions[0].param if spec.functions else "response_format"
        if len(pattern) > _MAX_REGEX_CHARS:
            raise InvalidSchema("The schema is too large for the outlines backend.", param=param)
        try:
            index = Index(pattern, self._vocabulary)
        except ValueError as error:
            raise InvalidSchema(
                f"The outlines backend cannot build the schema: {str(error)[:200]}", param=param
            ) from None
        schemas = [f.parameters for f in spec.functions]
        loose = open_object([*schemas, spec.answer.schema if spec.answer else False])
        matcher = OutlinesMatcher(Automaton(index, self._vocab, self._tokenizer))
        return Grammar(matcher, unchecked, loose)


def _calls(spec: OutputSpec, unchecked: list[str]) -> Iterator[str]:
    """One regex a tool; adds the paths that stay unchecked."""
    for function in spec.functions:
        pattern, paths = _regex(
            function.parameters,
            function.param,
            f"function '{function.name}'",
            "invalid_function_parameters",
        )
        unchecked += [f"tools.{function.name}#{path}" for path in paths]
        head, tail = re.escape(spec.format.head(function.name)), re.escape(spec.format.tail)
        yield f"{head}(?:{pattern}){tail}"


def _block(spec: OutputSpec, calls: list[str]) -> str:
    fmt = spec.format
    call = "(?:" + "|".join(calls) + ")"
    more = "" if spec.max_calls == 1 else f"(?:{re.escape(fmt.separator)}{call})*"
    free = spec.calls == "may" and spec.answer is None
    opening = ("" if free else fmt.open) + fmt.list_open
    return re.escape(opening) + call + more + re.escape(fmt.list_close + fmt.close)


def _regex(schema: Any, param: str, what: str, code: str | None) -> tuple[str, list[str]]:
    try:
        return schema_regex(schema)
    except Unsupported as unsupported:
        context = "(" + ", ".join(map(repr, unsupported.path)) + ")"
        raise InvalidSchema(
            f"Invalid schema for {what}: In context={context}, {unsupported.reason}.",
            param=param,
            code=code,
        ) from None
