"""Output specs to compiled constraints: one cache, one choice of backend."""

from __future__ import annotations

import json
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from tokenizers import Tokenizer

from agentspec.toolcall.choice import OutputSpec

from .base import Constraint
from .closing import Hints, required_texts
from .example import examples
from .llguidance_backend import LLGuidanceBackend
from .session import GrammarSession, Matcher
from .trigger import Marker, TriggerSession
from .vocab import Vocab

_MAX_HINTS = 400
_MAX_PHRASES = 32


class Backend(Protocol):
    name: str

    def compile(self, spec: OutputSpec) -> tuple[Matcher, list[str]]:
        """(matcher at the start, unchecked paths). Raises ``InvalidRequest``."""
        ...


class Compiled:
    """``CompiledConstraint``. ``unchecked``: schema paths that the mask does not hold.

    cold: whether the last ``compile`` that returned it had to build it. compile_us: what that took.
    """

    def __init__(self, start: Callable[[], Constraint], unchecked: Sequence[str], compile_us: int):
        self._start = start
        self.unchecked = tuple(unchecked)
        self.compile_us = compile_us
        self.cold = True

    def session(self) -> Constraint:
        """A new session at the answer's first token."""
        return self._start()


class ConstraintFactory:
    """Compiles specs for one vocabulary; results are cached by content. Thread-safe.

    token_bytes: the text of each token, V byte strings. vocab_size: V with padding.
    canonical: whether forced spans are part of the constraint (law 2); False is for measuring.
    flexible: accept the whole language (any whitespace, undeclared keys), not the canonical one.
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
        cache_size: int = 256,
    ):
        self._vocab = Vocab(token_bytes, frozenset(eos_ids), frozenset(special_ids), vocab_size)
        self._tokenizer = Tokenizer.from_str(hf_tokenizer_json)
        self._canonical = canonical
        self._backend = self._make_backend(backend, hf_tokenizer_json, flexible)
        self._cache_size = cache_size
        self._cache: OrderedDict[bytes, Compiled] = OrderedDict()
        self._markers: dict[str, Marker] = {}
        self._lock = threading.Lock()
        self._building: dict[bytes, threading.Lock] = {}

    def compile(self, spec: OutputSpec) -> Compiled:
        """The spec's constraint; may take a while. Raises ``InvalidSchema``, ``InvalidRequest``."""
        key = spec.key()
        with self._lock:
            building = self._building.setdefault(key, threading.Lock())
        with building:
            with self._lock:
                found = self._cache.get(key)
                if found is not None:
                    self._cache.move_to_end(key)
                    found.cold = False
                    self._building.pop(key, None)
                    return found
            try:
                made = self._build(spec)
                with self._lock:
                    self._cache[key] = made
                    while len(self._cache) > self._cache_size:
                        self._cache.popitem(last=False)
            finally:
                with self._lock:
                    self._building.pop(key, None)
        return made

    def _make_backend(self, name: str, hf_tokenizer_json: str, flexible: bool) -> Backend:
        if name == "llguidance":
            return LLGuidanceBackend(
                self._vocab, hf_tokenizer_json, canonical=self._canonical, flexible=flexible
            )
        if name == "outlines":
            from .outlines_backend import OutlinesBackend

            return OutlinesBackend(self._vocab, hf_tokenizer_json)
        raise ValueError(f"unknown grammar backend '{name}': choose llguidance or outlines")

    def _build(self, spec: OutputSpec) -> Compiled:
        started = time.perf_counter_ns()
        matcher, unchecked = self._backend.compile(spec)
        vocab, canonical = self._vocab, self._canonical
        prototype = GrammarSession(matcher, vocab, self._hints(spec), canonical=canonical)
        start: Callable[[], Constraint] = prototype.clone
        if spec.calls == "may" and spec.answer is None:
            marker = self._marker(spec.format.open)

            def start() -> Constraint:
                return TriggerSession(marker, prototype.clone)

        elapsed_us = (time.perf_counter_ns() - started) // 1000
        return Compiled(start, unchecked, elapsed_us)

    def _marker(self, text: str) -> Marker:
        with self._lock:
            if text not in self._markers:
                self._markers[text] = Marker(text.encode(), self._vocab)
            return self._markers[text]

    def _hints(self, spec: OutputSpec) -> Hints:
        schemas: list[Any] = [f.parameters for f in spec.functions]
        if spec.answer is not None:
            schemas.append(spec.answer.schema)
        texts = list(dict.fromkeys(required_texts(schemas)))[:_MAX_HINTS]
        tokens: dict[int, None] = {}
        for text in texts:
            tokens.update(dict.fromkeys(self._tokenizer.encode(" " + text).ids))
        phrases = list(dict.fromkeys(examples(schemas)))[:_MAX_PHRASES]
        return Hints(tuple(tokens), tuple(json.dumps(p)[1:-1].encode() for p in phrases))
