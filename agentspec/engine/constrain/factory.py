"""Output specs to compiled constraints: one cache, one choice of backend."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer

from agentspec.toolcall.choice import OutputSpec
from agentspec.toolcall.expansion import too_expansive
from agentspec.toolcall.format import ToolFormat
from agentspec.toolcall.marks import Marks, special_spellings
from agentspec.wire.errors import InvalidSchema

from .base import Constraint, ConstraintViolated
from .cache import Cache
from .closing import Hints, named_values, required_texts
from .example import examples
from .judged import JudgedSession
from .judged_matcher import JudgedMatcher
from .judging import judge_of
from .later import Later
from .limit import TooCostly, within_limit
from .llguidance_backend import LLGuidanceBackend
from .proposals import example_texts
from .session import Grammar, GrammarSession
from .trial import Trial
from .trigger import Marker, TriggerSession
from .vocab import Vocab
from .weight import heavy

_MAX_HINTS = 400
_MAX_PHRASES = 32
_MAX_NAMED = 24


class Backend(Protocol):
    name: str

    def compile(self, spec: OutputSpec, marks: Mapping[str, int] | None = None) -> Grammar:
        """The grammar at its start. marks: special tokens that the format's marks are, spelling ->
        id. Raises ``InvalidRequest``."""
        ...

    def sure(self, spec: OutputSpec) -> bool:
        """Whether it is known at a glance that ``compile`` succeeds, and masks hold everything."""
        ...


class Compiled:
    """``CompiledConstraint``. ``unchecked``: schema paths that the mask does not hold. proven: a
    right answer is known; with what is not checked by masks, that is not sure.

    cold: whether the last ``compile`` that returned it had to build it. compile_us: what that took.
    size_bytes: what building it took; 0 where that is little.
    """

    def __init__(
        self,
        start: Callable[[], Constraint],
        unchecked: Sequence[str],
        compile_us: int,
        *,
        proven: bool,
        size_bytes: int = 0,
    ):
        self._start = start
        self.unchecked = tuple(unchecked)
        self.proven = proven
        self.size_bytes = size_bytes
        self.compile_us = compile_us
        self.cold = True

    def session(self) -> Constraint:
        """A new session at the answer's first token."""
        return self._start()


class ConstraintFactory:
    """Compiles specs for one vocabulary; results are cached by content. Thread-safe.

    token_bytes: the text of each token, V byte strings. vocab_size: V with padding.
    canonical: whether forced spans are part of the constraint (law 2); False is for measuring.
    flexible: accept the whole language (white space, order of keys, undeclared keys), not the
    canonical one; what masks cannot hold is then left to the check of the finished value, as it is
    without ``judged``: both are for measuring.
    tried: whether what may take long is built in a process of its own first (see ``trial``).
    """

    def __init__(
        self,
        *,
        token_bytes: Sequence[bytes],
        eos_ids: Collection[int],
        special_ids: Collection[int],
        hf_tokenizer_json: str,
        vocab_size: int,
        backend: str = "llguidance",
        canonical: bool = True,
        flexible: bool = False,
        judged: bool = True,
        cache_size: int = 256,
        tried: bool = True,
    ):
        self._vocab = Vocab(token_bytes, frozenset(eos_ids), frozenset(special_ids), vocab_size)
        self._tokenizer = Tokenizer.from_str(hf_tokenizer_json)
        self._canonical = canonical
        self._judged = judged and not flexible
        self._backend = self._make_backend(backend, hf_tokenizer_json, flexible)
        same = {
            "token_bytes": list(token_bytes),
            "eos_ids": set(eos_ids),
            "special_ids": set(special_ids),
            "hf_tokenizer_json": hf_tokenizer_json,
            "vocab_size": vocab_size,
            "backend": backend,
            "canonical": canonical,
            "flexible": flexible,
            "judged": judged,
            "tried": False,
        }
        self._trial = Trial(same) if tried and hasattr(os, "fork") else None
        self._special = special_spellings(token_bytes, self._vocab.special_ids, self._vocab.eos_ids)
        self._cache = Cache(cache_size)
        self._markers: dict[str, Marker] = {}
        self._lock = threading.Lock()
        self._building: dict[bytes, threading.Lock] = {}

    def compile(self, spec: OutputSpec) -> Compiled:
        """The spec's constraint; may take a while. Raises ``InvalidSchema``, ``InvalidRequest``;
        ``Overloaded`` where too many that take long come at once.
        """
        key = hashlib.blake2b(spec.key(), digest_size=16).digest()
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            try:
                found = self._cache.get(key)
                if found is not None:
                    found.cold = False
                    return found
                made = self._compiled(spec)
                self._cache.put(key, made)
                return made
            except TooCostly as refused:
                self._cache.refuse(key, refused)
                raise
            finally:
                with self._lock:
                    self._building.pop(key, None)

    def warm(self) -> None:
        """Start the process in which heavy schemas are tried, so that the first need not wait."""
        if self._trial is not None:
            self._trial.warm()

    def _make_backend(self, name: str, hf_tokenizer_json: str, flexible: bool) -> Backend:
        if name == "llguidance":
            return LLGuidanceBackend(
                self._vocab, hf_tokenizer_json, canonical=self._canonical, flexible=flexible
            )
        if name == "outlines":
            from .outlines_backend import OutlinesBackend

            return OutlinesBackend(self._vocab, hf_tokenizer_json)
        raise ValueError(f"unknown grammar backend '{name}': choose llguidance or outlines")

    def _compiled(self, spec: OutputSpec) -> Compiled:
        started = time.perf_counter_ns()
        _check_expansion(spec)
        param = spec.functions[0].param if spec.functions else "response_format"
        size = 0
        if self._trial is not None and heavy(spec):
            size = self._trial.check(spec, param)
        waits = spec.calls == "may" and spec.answer is None and not spec.format.anchored
        unchecked: Sequence[str] = ()
        proven = True
        if waits and self._backend.sure(spec):
            inner = Later(lambda: within_limit(lambda: self.build(spec), param)[1][0]).session
        else:
            grammar, (prototype, proven) = within_limit(lambda: self.build(spec), param)
            inner, unchecked = prototype.clone, grammar.unchecked
        start: Callable[[], Constraint] = inner
        if waits:
            marker = self._marker(spec.format)

            def start() -> Constraint:
                return TriggerSession(marker, inner)

        elapsed_us = (time.perf_counter_ns() - started) // 1000
        return Compiled(start, unchecked, elapsed_us, proven=proven, size_bytes=size)

    def build(self, spec: OutputSpec) -> tuple[Grammar, tuple[GrammarSession, bool]]:
        """(the grammar, a session at its start and whether it is proven): what ``compile`` does
        under limits. Raises as it does.
        """
        marks = Marks.of(spec.format, self._special) if spec.functions else Marks()
        grammar = self._backend.compile(spec, marks.ids)
        return grammar, self._prototype(spec, grammar, marks)

    def _prototype(
        self, spec: OutputSpec, grammar: Grammar, marks: Marks
    ) -> tuple[GrammarSession, bool]:
        """(the session at its start, whether an answer is known that meets every keyword)."""
        hints, canonical = self._hints(spec, marks), self._canonical
        vocab = self._vocab.with_marks(marks.ids.values()) if marks.ids else self._vocab
        judged = self._judged and (bool(grammar.unchecked) or grammar.loose)
        if not judged:
            session = GrammarSession(grammar.matcher, vocab, hints, canonical=canonical)
            return session, not grammar.unchecked
        matcher = JudgedMatcher(
            grammar.matcher, judge_of(spec, grammar.unchecked), vocab.token_bytes
        )
        session = JudgedSession(matcher, vocab, hints, canonical=canonical)
        param = spec.functions[0].param if spec.functions else "response_format"
        try:
            proven = session.prove(list(example_texts(spec)))
            if not proven and session.impossible():
                raise InvalidSchema("Invalid schema: no value can satisfy it.", param=param)
            return session, proven
        except ConstraintViolated as violated:
            raise InvalidSchema(f"The schema is too complex: {violated}.", param=param) from None

    def _marker(self, fmt: ToolFormat) -> Marker:
        with self._lock:
            if fmt.name not in self._markers:
                marks = Marks.of(fmt, self._special)
                self._markers[fmt.name] = Marker(fmt.open, self._vocab, marks.ids)
            return self._markers[fmt.name]

    def _hints(self, spec: OutputSpec, marks: Marks) -> Hints:
        schemas: list[Any] = [f.parameters for f in spec.functions]
        if spec.answer is not None:
            schemas.append(spec.answer.schema)
        texts = list(dict.fromkeys(required_texts(schemas)))[:_MAX_HINTS]
        tokens: dict[int, None] = {}
        for text in texts:
            tokens.update(dict.fromkeys(self._tokenizer.encode(" " + text).ids))
        phrases = list(dict.fromkeys(examples(schemas)))[:_MAX_PHRASES]
        named = [json.dumps(v, ensure_ascii=False) for v in named_values(schemas, _MAX_NAMED)]
        return Hints(
            tuple(tokens),
            tuple(text.encode() for text in dict.fromkeys(named)),
            tuple(json.dumps(p)[1:-1].encode() for p in phrases),
            _closing_first(spec.format, marks),
        )


def _closing_first(fmt: ToolFormat, marks: Marks) -> tuple[int, ...]:
    """Tokens of the format's marks, those that end a call or the calls before the others."""
    ends = fmt.list_close + fmt.close, fmt.tail_template
    order = sorted(marks.ids, key=lambda s: (s not in ends[0], s not in ends[1], s))
    return tuple(marks.ids[spelling] for spelling in order)


def _check_expansion(spec: OutputSpec) -> None:
    """Raise ``InvalidSchema`` where a check of a value could take for ever."""
    for function in spec.functions:
        if reason := too_expansive(function.parameters):
            raise InvalidSchema(
                f"Invalid schema for function '{function.name}': In context=(), {reason}.",
                param=function.param,
                code="invalid_function_parameters",
            )
    if spec.answer is not None and (reason := too_expansive(spec.answer.schema)):
        raise InvalidSchema(
            f"Invalid schema for response_format '{spec.answer.name}': In context=(), {reason}.",
            param=spec.answer.param,
        )
