"""The default constraint backend: llguidance (MIT; 1.9.1 probed).

One Lark grammar an answer: marker, list of calls, and each tool's arguments as a ``%json`` document
of its own, so that references resolve inside it. llguidance never raises: a matcher that has met an
error stays in it silently. Every call here is followed by a look, and errors raise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import llguidance
import numpy as np

from agentspec.toolcall.choice import OutputSpec
from agentspec.toolcall.compose import argument_rules, frame
from agentspec.wire.errors import InvalidRequest, InvalidSchema

from .base import ConstraintViolated
from .judging import open_object
from .ordinary import ordinary
from .productive import productive
from .relax import LEVELS, Relaxed, relax
from .session import Grammar
from .vocab import Vocab

# Canonical output: fixed separators; escapes only where JSON demands one. Without "u" no key can be
# spelled in two ways, so an additional key never stands for a declared one.
_CANONICAL = {
    "whitespace_flexible": False,
    "item_separator": ", ",
    "key_separator": ": ",
    "json_allowed_escapes": '"\\bfnrt',
}
_MAX_ROW_ITEMS = 40_000
"""Of the parser; an object with 5,000 optional members takes four times as many."""
_FLEXIBLE = {"whitespace_flexible": True, "json_allow_general_unicode_escapes": True}
"""Of JSON's spellings only the escaped slash is missing: the engine has none."""


class LLGuidanceMatcher:
    """``Matcher`` over an ``LLMatcher``."""

    __slots__ = ("_matcher",)

    def __init__(self, matcher: llguidance.LLMatcher):
        self._matcher = matcher

    def legal(self, token: int) -> bool:
        legal = self._matcher.validate_tokens([token]) == 1
        return legal or self._alive()

    def push(self, token: int) -> None:
        if self._matcher.try_consume_tokens([token]) != 1:
            self._alive()
            raise ConstraintViolated(f"the grammar does not allow token {token} here")

    def pop(self, count: int) -> None:
        if count and not self._matcher.rollback(count):
            self._alive()
            raise ConstraintViolated(f"the matcher could not roll back {count} tokens")

    def fill(self, row: np.ndarray) -> None:
        assert row.dtype == np.int32 and row.flags.c_contiguous
        self._matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)
        if self._matcher.is_stopped():
            self._alive()

    def forced(self) -> list[int]:
        return self._matcher.compute_ff_tokens()

    def accepting(self) -> bool:
        return self._matcher.is_accepting()

    def ended(self) -> bool:
        return self._matcher.is_stopped()

    def copy(self) -> LLGuidanceMatcher:
        return LLGuidanceMatcher(self._matcher.deep_copy())

    def _alive(self) -> bool:
        """False; raises where the matcher is in an error state (a limit was hit)."""
        if self._matcher.is_error():
            raise ConstraintViolated(
                f"the grammar failed: {_first_line(self._matcher.get_error())}"
            )
        return False


class LLGuidanceBackend:
    """Compiles output specs to matchers. Thread-safe; building one takes about 0.3 s."""

    name = "llguidance"

    def __init__(
        self,
        vocab: Vocab,
        hf_tokenizer_json: str,
        *,
        canonical: bool = True,
        flexible: bool = False,
    ):
        # Else llguidance's own masks hold nothing but the canonical token at forced positions.
        self._prologue = "" if canonical else '%llguidance {"no_forcing": true}\n'
        self._options = _FLEXIBLE if flexible else _CANONICAL
        self._flexible = flexible
        self._tokenizer = llguidance.LLTokenizer(
            hf_tokenizer_json, n_vocab=vocab.size, eos_token=sorted(vocab.eos_ids)
        )
        # Without forcing, only masks refill the fuel of steps, and no error tells that it is out.
        fuel = 200_000 if canonical else 100_000_000
        self._limits = llguidance.LLParserLimits(
            verbose_errors=False, step_lexer_fuel=fuel, max_items_in_row=_MAX_ROW_ITEMS
        )

    def compile(self, spec: OutputSpec, marks: Mapping[str, int] | None = None) -> Grammar:
        """The grammar at its start. marks: spellings that are tokens of their own -> id.

        Where calls may but need not be made and the rest is free text, the grammar starts after the
        opening marker. Raises ``InvalidSchema`` or ``InvalidRequest``.
        """
        if spec.grammar is not None:
            return Grammar(self._own_grammar(spec.grammar), [])
        lines: list[str] = []
        unchecked: list[str] = []
        loose = False
        for i, function in enumerate(spec.functions):
            what = f"function '{function.name}'"
            relaxed, _ = self._document(
                function.parameters, function.param, what, code="invalid_function_parameters"
            )
            rules = argument_rules(spec.format, f"args_{i}", relaxed.document, self._dump)
            lines += rules.lines
            paths = (*relaxed.unchecked, *rules.unchecked)
            unchecked += [f"tools.{function.name}#{path}" for path in paths]
            loose = loose or open_object(relaxed.document)
        built: llguidance.LLMatcher | None = None
        if spec.answer is not None:
            answer = spec.answer
            relaxed, built = self._document(
                answer.schema, answer.param, f"response_format '{answer.name}'", code=None
            )
            lines.append(f"answer: %json {self._dump(relaxed.document)}")
            unchecked += [f"response_format#{path}" for path in relaxed.unchecked]
            loose = loose or open_object(relaxed.document)
        if built is not None and not spec.functions:
            return Grammar(LLGuidanceMatcher(built), unchecked, loose)
        matcher = self._matcher("\n".join([frame(spec, marks), *lines, ""]))
        if error := matcher.get_error():
            param = spec.functions[0].param if spec.functions else "response_format"
            raise InvalidSchema(f"The grammar cannot be built: {_first_line(error)}", param=param)
        return Grammar(LLGuidanceMatcher(matcher), unchecked, loose)

    def sure(self, spec: OutputSpec) -> bool:
        """See ``factory.Backend.sure``; without building anything."""
        if spec.grammar is not None or spec.answer is not None or self._flexible:
            return False
        for function in spec.functions:
            relaxed = relax(function.parameters, LEVELS[0])
            document = relaxed.document
            if relaxed.unchecked or not ordinary(document) or open_object(document):
                return False
            rules = argument_rules(spec.format, "args", document, self._dump)
            if rules.unchecked or not productive(document):
                return False
        return True

    def _document(
        self, schema: Any, param: str, what: str, *, code: str | None
    ) -> tuple[Relaxed, llguidance.LLMatcher | None]:
        """The least relaxed version that llguidance takes, and its matcher, if one was built."""
        reason = ""
        for level in LEVELS:
            relaxed = relax(schema, level, canonical=not self._flexible)
            if not productive(relaxed.document):
                reason = "no finite value can satisfy it"
                if level.narrow:
                    continue
                break
            if ordinary(relaxed.document):
                return relaxed, None
            matcher = self._matcher(f"start: %json {self._dump(relaxed.document)}\n")
            reason = self._refusal(matcher)
            if not reason:
                return relaxed, matcher
            if "nsatisfiable" in reason and not level.narrow:
                break
        raise InvalidSchema(
            f"Invalid schema for {what}: In context=(), {reason}.", param=param, code=code
        )

    @staticmethod
    def _refusal(matcher: llguidance.LLMatcher) -> str:
        """Why llguidance cannot compile a document, or "". Building shows more than validating."""
        if error := matcher.get_error():
            return _first_line(error)
        matcher.compute_bitmask()
        if error := matcher.get_error():
            return _first_line(error)
        return "unsatisfiable" if matcher.is_stopped() and not matcher.is_accepting() else ""

    def _own_grammar(self, lark: str) -> LLGuidanceMatcher:
        matcher = self._matcher(lark)
        error = matcher.get_error()
        if not error:
            matcher.compute_bitmask()
            error = matcher.get_error()
        if error or (matcher.is_stopped() and not matcher.is_accepting()):
            raise InvalidRequest(
                f"Invalid 'agentspec.grammar': {_first_line(error) or 'no text satisfies it'}",
                param="agentspec.grammar",
                code="invalid_grammar",
            )
        return LLGuidanceMatcher(matcher)

    def _matcher(self, lark: str) -> llguidance.LLMatcher:
        grammar = llguidance.LLMatcher.grammar_from_lark(self._prologue + lark)
        return llguidance.LLMatcher(self._tokenizer, grammar, log_level=0, limits=self._limits)

    def _dump(self, document: Any) -> str:
        if isinstance(document, dict):
            document = {**document, "x-guidance": self._options}
        return json.dumps(document)


def _first_line(error: str) -> str:
    return error.strip().split("\n", 1)[0][:300]
