"""A tiny world for the engine's tests: a model with real pages, a grammar, drafters, and a clock.

Legend: R rows of logits, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq
from dataclasses import dataclass, field

import torch
from torch import Tensor

from agentspec.engine.batch import Forward, Span
from agentspec.engine.constrain import ConstraintViolated
from agentspec.engine.control import ControlWindows
from agentspec.engine.core import Engine
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft.base import Drafter, DraftView, Proposal
from agentspec.settings import EngineSettings
from agentspec.settings_scheduling import SchedulingSettings

EOS, A, B, C, OPEN, CLOSE, COMMA, DEEP, UNDEEP, HIGH, LOW, AB = range(12)
TOKEN_BYTES = [b"", b"a", b"b", b"c", b"{", b"}", b",", b"[", b"]", b"\xc3", b"\xa9", b"ab"]
VOCAB = len(TOKEN_BYTES)
_NOISE = 997


class ToyModel:
    """Next-token logits [V] float64 as a fixed function of the whole history."""

    def __init__(self, seed: int = 0, sharpness: float = 2.0):
        generator = torch.Generator().manual_seed(seed)
        self._pair = sharpness * torch.randn(VOCAB, VOCAB, generator=generator, dtype=torch.float64)
        self._noise = torch.randn(_NOISE, VOCAB, generator=generator, dtype=torch.float64)
        self._noise[:, EOS] -= 1.0

    @staticmethod
    def state(before: int, token: int, position: int) -> int:
        """The "K/V" of a position: depends on everything before it."""
        return (before * 6364136223846793005 + token * 1442695040888963407 + position) % (1 << 61)

    def row(self, states: Seq[int], token: int) -> Tensor:
        """Logits after ``token``; states: of every position up to it."""
        mix = sum(state * (position + 1) for position, state in enumerate(states))
        return self._pair[token] + self._noise[mix % _NOISE]

    def logits(self, tokens: Seq[int]) -> Tensor:
        """Logits [V] after ``tokens``, computed without any cache."""
        states: list[int] = []
        for position, token in enumerate(tokens):
            states.append(self.state(states[-1] if states else 0, token, position))
        return self.row(states, tokens[-1])


class ToyRunner:
    """``ToyModel`` over pages. A state that was never written, or by another text, shows."""

    vocab_size = VOCAB
    exact = True

    def __init__(
        self, model: ToyModel, *, num_pages: int, page_tokens: int = 4, context_tokens: int = 256
    ):
        self.model = model
        self.num_pages = num_pages
        self.page_tokens = page_tokens
        self.context_tokens = context_tokens
        self.fails = 0
        self.moved = 0
        self.rows: list[int] = []
        self._pages: list[list[int | None]] = [[None] * page_tokens for _ in range(num_pages)]

    def forward(self, spans: Seq[Span], /) -> Forward:
        self.rows.append(sum(len(span.tokens) for span in spans))
        logits = [row for span in spans for row in self._span(span)]
        if self.fails:
            self.fails -= 1
            raise RuntimeError("the device is gone")
        empty = torch.empty(0, VOCAB, dtype=torch.float64)
        return Forward(torch.stack(logits) if logits else empty)

    def _span(self, span: Span) -> list[Tensor]:
        logits = []
        context = [self._read(span.pages, slot) for slot in range(span.start)]
        paths: list[list[int]] = []
        drafted = 0 if span.parents is None else len(span.parents)
        first = len(span.tokens) - drafted
        for offset, token in enumerate(span.tokens):
            before = offset - 1
            if span.parents is not None and offset >= first:
                before = first + span.parents[offset - first]
            states = context if before < 0 else paths[before]
            state = self.model.state(states[-1] if states else 0, token, len(states))
            paths.append([*states, state])
            self._write(span.pages, span.start + offset, state)
            if offset in span.logit_rows:
                logits.append(self.model.row(paths[-1], token))
        return logits

    def compact(self, pages: Seq[int], moves: Seq[tuple[int, int]], /) -> None:
        for source, to in moves:
            self.moved += 1
            self._write(pages, to, self._read(pages, source))

    def _write(self, pages: Seq[int], slot: int, state: int) -> None:
        self._pages[pages[slot // self.page_tokens]][slot % self.page_tokens] = state

    def _read(self, pages: Seq[int], slot: int) -> int:
        state = self._pages[pages[slot // self.page_tokens]][slot % self.page_tokens]
        assert state is not None, "a position is read that was never computed"
        return state


@dataclass(frozen=True)
class Dfa:
    """A grammar as a table. free: the state outside of the grammar, where every token may stand."""

    start: str
    moves: dict[str, dict[int, str]]
    accepting: frozenset[str]
    free: str | None = None
    opener: int = OPEN
    opened: str = "key"
    cold: bool = False
    compile_us: int = 0

    def session(self) -> DfaSession:
        return DfaSession(self, [self.start])

    def options(self, state: str) -> dict[int, str]:
        if state == self.free:
            return {
                token: self.opened if token == self.opener else state
                for token in range(VOCAB)
                if token != EOS
            }
        return self.moves.get(state, {})

    def shortest(self, state: str, limit: int) -> list[int] | None:
        """The shortest way to an accepting state, smallest tokens first; None beyond ``limit``."""
        queue: deque[tuple[str, list[int]]] = deque([(state, [])])
        seen = {state}
        while queue:
            here, path = queue.popleft()
            if here in self.accepting:
                return path
            if len(path) == limit:
                continue
            for token, there in sorted(self.options(here).items()):
                if there not in seen:
                    seen.add(there)
                    queue.append((there, [*path, token]))
        return None


_BODY = {
    "key": {A: "key2"},
    "key2": {B: "value"},
    "value": {A: "more", B: "more", DEEP: "deep", HIGH: "char"},
    "char": {LOW: "more"},
    "deep": {A: "deep", C: "deep", UNDEEP: "more"},
    "more": {COMMA: "key", CLOSE: "end"},
}
JSON_LIKE = Dfa("start", {"start": {OPEN: "key"}, **_BODY}, frozenset({"end"}))
"""The whole answer: {ab VALUE , ab VALUE ... }"""

TOOL_LIKE = Dfa(
    "free",
    {**_BODY, "more": {COMMA: "key", CLOSE: "free"}},
    frozenset({"free"}),
    free="free",
)
"""Free text in which "{" opens the grammar."""


class DfaSession:
    """A live session: the states passed so far."""

    def __init__(self, dfa: Dfa, path: list[str]):
        self.dfa = dfa
        self.path = path

    @property
    def state(self) -> str:
        return self.path[-1]

    def masks(self, draft: Seq[int], rows: Tensor) -> int:
        """rows: [len(draft)+1, W] int32."""
        state = self.state
        for count in range(len(draft) + 1):
            allowed = set(self.dfa.options(state)) | (
                {EOS} if state in self.dfa.accepting else set()
            )
            rows[count] = 0
            for token in allowed:
                rows[count, token // 32] |= 1 << token % 32
            if count == len(draft) or draft[count] not in self.dfa.options(state):
                return count
            state = self.dfa.options(state)[draft[count]]
        raise AssertionError

    def needs_mask(self) -> bool:
        return self.state != self.dfa.free

    def allows(self, token: int) -> bool:
        return token in self.dfa.options(self.state) or (token == EOS and self.may_stop)

    def forced(self, limit: int) -> list[int]:
        state, span = self.state, []
        while len(span) < limit and state not in self.dfa.accepting:
            options = self.dfa.options(state)
            if len(options) != 1:
                break
            ((token, state),) = options.items()
            span.append(token)
        return span

    def accept(self, tokens: Seq[int]) -> None:
        for token in tokens:
            if token not in self.dfa.options(self.state):
                raise ConstraintViolated(f"token {token} in state {self.state}")
            self.path.append(self.dfa.options(self.state)[token])

    def rollback(self, count: int) -> None:
        if count:
            del self.path[-count:]

    def viable(self) -> bool:
        return True

    def ban(self, token: int) -> None:
        raise AssertionError("every token of these grammars is viable")

    def clone(self) -> DfaSession:
        return DfaSession(self.dfa, list(self.path))

    @property
    def in_grammar(self) -> bool:
        return self.state != self.dfa.free

    @property
    def may_stop(self) -> bool:
        return self.state in self.dfa.accepting

    @property
    def must_stop(self) -> bool:
        return self.may_stop and not self.dfa.options(self.state)

    def closing(self, limit: int) -> list[int] | None:
        return self.dfa.shortest(self.state, limit)


class RecordingDrafter:
    """Base of the toy drafters: checks that it is called as the contract says."""

    taps: tuple[int, ...] = ()

    def __init__(self, name: str):
        self.name = name
        self.seen: dict[int, int] = {}
        self.accepted = 0

    def open(self, view: DraftView) -> None:
        assert view.sequence_id not in self.seen, "opened twice"
        self.seen[view.sequence_id] = len(view.tokens)

    def propose(self, views: Seq[DraftView], limits: Seq[int]) -> list[Proposal]:
        for view in views:
            assert self.seen[view.sequence_id] == len(view.tokens), "not told of every token"
        return [self.one(view, limit) for view, limit in zip(views, limits, strict=True)]

    def one(self, view: DraftView, limit: int) -> Proposal:
        raise NotImplementedError

    def commit(self, view: DraftView, proposal: Proposal, accepted: int, committed: int) -> None:
        before = self.seen[view.sequence_id]
        assert before + committed == len(view.tokens), "told a wrong number of tokens"
        assert accepted <= min(committed, len(proposal))
        assert len(proposal.follow(view.tokens[before : before + accepted])) == accepted
        self.seen[view.sequence_id] = len(view.tokens)
        self.accepted += accepted

    def close(self, view: DraftView) -> None:
        del self.seen[view.sequence_id]

    def one_hot(self, tokens: Seq[int], confidence: float = 0.9) -> Proposal:
        return Proposal(
            tuple(tokens), (self.name,) * len(tokens), tuple([confidence] * len(tokens))
        )


class OracleDrafter(RecordingDrafter):
    """Knows the model; every ``wrong``-th position is off by one."""

    def __init__(self, model: ToyModel, wrong: int = 4, name: str = "oracle"):
        super().__init__(name)
        self._model = model
        self._wrong = wrong

    def one(self, view: DraftView, limit: int) -> Proposal:
        tokens = list(view.tokens)
        session = view.constraint.clone() if view.constraint else None
        for _ in range(limit):
            scores = self._model.logits(tokens)
            if session is not None:
                bad = [t for t in range(VOCAB) if not session.allows(t)]
                scores = scores.clone()
                scores[bad] = -torch.inf
            token = int(scores.argmax())
            if len(tokens) % self._wrong == 0:
                token = (token + 1) % VOCAB
            tokens.append(token)
            if session is not None:
                if token == EOS or not session.allows(token):
                    break
                session.accept([token])
        return self.one_hot(tokens[len(view.tokens) :])


class EchoDrafter(RecordingDrafter):
    """Repeats what followed the last token's previous occurrence; may propose nothing."""

    def one(self, view: DraftView, limit: int) -> Proposal:
        last = view.tokens[-1]
        for at in range(len(view.tokens) - 2, -1, -1):
            if view.tokens[at] == last:
                return self.one_hot(view.tokens[at + 1 : at + 1 + limit], 0.5)
        return Proposal()


class DenseDrafter(RecordingDrafter):
    """Draws from a distribution of its own that ignores the grammar, and says so."""

    def one(self, view: DraftView, limit: int) -> Proposal:
        at = len(view.tokens)
        generator = torch.Generator().manual_seed(at)
        probs = torch.rand(limit, VOCAB, generator=generator) ** 4 + 0.01
        probs /= probs.sum(dim=1, keepdim=True)
        generator.manual_seed((view.sequence_id << 20) + at)
        tokens = torch.multinomial(probs, 1, generator=generator).flatten().tolist()
        return Proposal(tuple(tokens), (self.name,) * limit, (0.4,) * limit, probs)


@dataclass
class ToyClock:
    """Nanoseconds that advance by an odd amount at each look."""

    now_ns: int = 10**12
    step_ns: int = 1777
    looks: int = field(default=0)

    def __call__(self) -> int:
        self.looks += 1
        self.now_ns += self.step_ns + self.looks % 7 * 313
        return self.now_ns


FLAT = CostCurve((1, 1024), (1.0, 1.0))
"""Rows cost nothing: every draft is verified."""


def make_engine(
    runner: ToyRunner,
    drafters: Seq[Drafter] = (),
    *,
    curve: CostCurve = FLAT,
    control: ControlWindows | None = None,
    **settings,
) -> Engine:
    # The toy's clock knows nothing of a pass's cost: every draft is verified.
    fixed = {"scheduling": SchedulingSettings(mode="k99")}
    defaults = {"context_tokens": 200, "max_draft_tokens": 5, "step_tokens": 64} | fixed
    return Engine(
        runner,
        drafters,
        curve=curve,
        settings=EngineSettings(**{**defaults, **settings}),
        token_bytes=TOKEN_BYTES,
        clock=ToyClock(),
        control=control,
    )
