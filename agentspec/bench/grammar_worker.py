"""One grammar engine behind a pipe: a schema and its instances in, verdicts and times out.

Usage: ``python grammar_worker.py ENGINE FOLDER``; FOLDER holds ``vocabulary.json`` (``{tokenizer,
pieces, eos, special, size}``). In: ``{schema, texts}``. Out: ``{"compiled": us}`` or ``{"refused":
reason}`` as soon as it is known, then ``{accepted, mask_us, apply_us}``. It serves in a fork of
itself: what takes too long is ended by SIGUSR1, and the next fork says ``{"ready": true}``. Runs in
the environment that has the engine, so nothing of agentspec is imported but by its own engine.

Legend: V vocabulary, W = ceil(V / 32) mask words.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

_TIMED_ROWS = 48
_TIMED_APPLIES = 2


class Refused(Exception):
    """The engine does not take the schema."""


class Vocabulary:
    """What the parent wrote into the folder."""

    def __init__(self, folder: Path):
        from tokenizers import Tokenizer

        held = json.loads((folder / "vocabulary.json").read_text())
        self.json: str = held["tokenizer"]
        self.pieces = [base64.b64decode(piece) for piece in held["pieces"]]
        self.eos: list[int] = held["eos"]
        self.special: list[int] = held["special"]
        self.size: int = held["size"]
        self._tokenizer = Tokenizer.from_str(self.json)

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False).ids


class Agentspec:
    """The whole path: the schema's rules, the canonical mask that serves, the mask of the checked
    language, and the check of the finished value.
    """

    def __init__(self, vocabulary: Vocabulary):
        from agentspec.engine.constrain.factory import ConstraintFactory

        def factory(**options: Any) -> Any:
            return ConstraintFactory(
                token_bytes=vocabulary.pieces,
                eos_ids=vocabulary.eos,
                special_ids=vocabulary.special,
                hf_tokenizer_json=vocabulary.json,
                vocab_size=vocabulary.size,
                **options,
            )

        self._served = factory()
        self._checked = factory(canonical=False, flexible=True)

    def begin(self) -> None:
        self._served.warm()

    def compile(self, schema: Any) -> Any:
        """What serves the request; ``prepare`` makes what judges instances."""
        from agentspec.toolcall.check import ValueChecker
        from agentspec.toolcall.choice import Answer, OutputSpec
        from agentspec.toolcall.format import load_format
        from agentspec.toolcall.schema import validate_schema
        from agentspec.wire.errors import InvalidRequest

        try:
            validate_schema(schema, "response_format", "response_format 'instance'")
            answer = Answer(schema, "instance", "response_format")
            spec = OutputSpec(format=load_format("smollm2"), answer=answer)
            served = self._served.compile(spec)
        except InvalidRequest as error:
            raise Refused(error.message) from None
        return spec, served, ValueChecker(schema)

    def prepare(self, compiled: Any) -> Any:
        spec, served, checker = compiled
        return self._checked.compile(spec), served, checker

    def start(self, compiled: Any) -> Any:
        return compiled[0].session()

    def mask(self, session: Any, row: Any) -> None:
        session.masks((), row)

    def advance(self, session: Any, token: int) -> bool:
        if not session.allows(token):
            return False
        session.accept((token,))
        return True

    def ended(self, session: Any) -> bool:
        return session.may_stop

    def judge(self, compiled: Any, text: str) -> bool:
        return compiled[2].check(text) is None

    def apply(self, row: Any, logits: Any) -> None:
        from agentspec.engine.sampling import unpack_mask

        logits[0].masked_fill_(~unpack_mask(row[0], logits.shape[1]), float("-inf"))


class Peer:
    """What the peers have in common: no check behind the mask."""

    def begin(self) -> None: ...

    def prepare(self, compiled: Any) -> Any:
        return compiled

    def judge(self, compiled: Any, text: str) -> bool:
        return True

    def apply(self, row: Any, logits: Any) -> None:
        import numpy as np
        import torch

        bits = np.unpackbits(row.numpy().view(np.uint8), bitorder="little")[: logits.shape[1]]
        logits[0].masked_fill_(torch.from_numpy(bits == 0), float("-inf"))


class LLGuidance(Peer):
    def __init__(self, vocabulary: Vocabulary):
        import llguidance

        self._engine = llguidance
        self._tokenizer = llguidance.LLTokenizer(
            vocabulary.json, n_vocab=vocabulary.size, eos_token=vocabulary.eos
        )

    def compile(self, schema: Any) -> Any:
        options: Any = {"json_allow_general_unicode_escapes": True}
        text = json.dumps(schema)
        try:
            grammar = self._engine.LLMatcher.grammar_from_json_schema(text, overrides=options)
        except ValueError as error:
            raise Refused(str(error)) from None
        matcher = self._engine.LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise Refused(matcher.get_error().split("\n")[0])
        return matcher

    def start(self, compiled: Any) -> Any:
        return compiled.deep_copy()

    def mask(self, session: Any, row: Any) -> None:
        session.unsafe_compute_mask_ptr(row.data_ptr(), row.shape[1] * 4)

    def advance(self, session: Any, token: int) -> bool:
        return session.try_consume_tokens([token]) == 1

    def ended(self, session: Any) -> bool:
        return session.is_accepting()


class XGrammar(Peer):
    def __init__(self, vocabulary: Vocabulary):
        import xgrammar  # pyright: ignore[reportMissingImports]

        self._engine = xgrammar
        info = xgrammar.TokenizerInfo(
            vocabulary.pieces,
            xgrammar.VocabType.RAW,
            vocab_size=vocabulary.size,
            stop_token_ids=vocabulary.eos,
        )
        self._compiler = xgrammar.GrammarCompiler(
            info, max_threads=1, cache_enabled=False, enable_dynamic_compilation=True
        )

    def compile(self, schema: Any) -> Any:
        try:
            return self._compiler.compile_json_schema(
                json.dumps(schema), any_whitespace=True, strict_mode=False
            )
        except Exception as error:  # the engine's errors have no common class
            raise Refused(str(error)) from None

    def start(self, compiled: Any) -> Any:
        return self._engine.GrammarMatcher(compiled)

    def mask(self, session: Any, row: Any) -> None:
        session.fill_next_token_bitmask(row, 0)

    def advance(self, session: Any, token: int) -> bool:
        return session.accept_token(token)

    def ended(self, session: Any) -> bool:
        return session.is_completed()

    def apply(self, row: Any, logits: Any) -> None:
        self._engine.apply_token_bitmask_inplace(logits, row)


class Outlines(Peer):
    def __init__(self, vocabulary: Vocabulary):
        import outlines_core
        from outlines_core import json_schema

        self._engine, self._schema = outlines_core, json_schema
        pieces: dict[Any, list[int]] = {}
        special = {*vocabulary.special, *vocabulary.eos}
        for token, piece in enumerate(vocabulary.pieces):
            if piece and token not in special:
                pieces.setdefault(piece, []).append(token)
        self._vocabulary = outlines_core.Vocabulary(vocabulary.eos[0], pieces)

    def compile(self, schema: Any) -> Any:
        # A regex whose automaton takes minutes would be cut off by the parent all the same.
        try:
            regex = self._schema.build_regex_from_schema(json.dumps(schema))
            return self._engine.Index(regex, self._vocabulary)
        except Exception as error:  # likewise
            raise Refused(str(error)) from None

    def start(self, compiled: Any) -> Any:
        return self._engine.Guide(compiled)

    def mask(self, session: Any, row: Any) -> None:
        session.write_mask_into(row.data_ptr(), row.shape[1], 4)

    def advance(self, session: Any, token: int) -> bool:
        try:
            session.advance(token, return_tokens=False)
        except ValueError:
            return False
        return True

    def ended(self, session: Any) -> bool:
        return session.is_finished()


ENGINES: dict[str, Any] = {
    "agentspec": Agentspec,
    "llguidance": LLGuidance,
    "xgrammar": XGrammar,
    "outlines": Outlines,
}


class Judge:
    """One engine at work on one schema after the other."""

    def __init__(self, engine: Any, vocabulary: Vocabulary):
        import torch

        self._engine, self._vocabulary = engine, vocabulary
        self._row = torch.full((1, (vocabulary.size + 31) // 32), -1, dtype=torch.int32)
        self._logits = torch.zeros(1, vocabulary.size)

    def begin(self) -> None:
        """In the process that serves."""
        self._engine.begin()

    def compile(self, schema: Any) -> tuple[Any, dict[str, Any]]:
        started = time.perf_counter_ns()
        try:
            compiled = self._engine.compile(schema)
        except Refused as refused:
            return None, {"refused": str(refused)[:300]}
        return compiled, {"compiled": _us(started)}

    def texts(self, compiled: Any, texts: list[str]) -> dict[str, Any]:
        prepared = self._engine.prepare(compiled)
        mask_us: list[float] = []
        apply_us: list[float] = []
        accepted = [self._accepts(prepared, text, mask_us, apply_us) for text in texts]
        return {"accepted": accepted, "mask_us": mask_us, "apply_us": apply_us}

    def _accepts(self, prepared: Any, text: str, masks: list[float], applies: list[float]) -> bool:
        session = self._engine.start(prepared)
        for token in self._vocabulary.encode(text):
            if len(masks) < _TIMED_ROWS:
                started = time.perf_counter_ns()
                self._engine.mask(session, self._row)
                masks.append(_us(started))
                if len(applies) < _TIMED_APPLIES:
                    started = time.perf_counter_ns()
                    self._engine.apply(self._row, self._logits)
                    applies.append(_us(started))
            if not self._engine.advance(session, token):
                return False
        return self._engine.ended(session) and self._engine.judge(prepared, text)


def _us(since_ns: int) -> float:
    return (time.perf_counter_ns() - since_ns) / 1000


def _say(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


def _serve(judge: Judge) -> None:
    """Every case of standard input, to its end."""
    judge.begin()
    for line in sys.stdin:
        asked = json.loads(line)
        compiled, told = judge.compile(asked["schema"])
        _say(told)
        if compiled is not None:
            _say(judge.texts(compiled, asked["texts"]))


def main() -> None:
    """Serve in a fork; SIGUSR1 ends what it is at, and another one goes on with the next case."""
    import torch

    torch.set_num_threads(1)
    vocabulary = Vocabulary(Path(sys.argv[2]))
    judge = Judge(ENGINES[sys.argv[1]](vocabulary), vocabulary)
    serving = 0
    signal.signal(signal.SIGUSR1, lambda *_: os.kill(serving, signal.SIGKILL))
    while True:
        _say({"ready": True})
        serving = os.fork()
        if serving == 0:
            signal.signal(signal.SIGUSR1, signal.SIG_DFL)
            _serve(judge)
            os._exit(0)
        _, status = os.waitpid(serving, 0)
        if os.WIFEXITED(status) and os.WEXITSTATUS(status) == 0:
            return


if __name__ == "__main__":
    main()
