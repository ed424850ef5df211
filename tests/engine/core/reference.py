"""What a request must give, computed the slow way: one token after the other, no pages, no drafts.

Legend: V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from agentspec.engine.request import GenerationRequest, TokenInfo
from agentspec.engine.sampling import Entropy, History, target_probs
from tests.engine.core.toy import EOS, TOKEN_BYTES, VOCAB, Dfa, ToyModel


@dataclass
class Truth:
    """output: token ids, a stop token included."""

    output: list[int] = field(default_factory=list)
    forced: int = 0
    finish_reason: str = ""
    text: str = ""
    infos: list[TokenInfo] = field(default_factory=list)


def cut_at_stop(data: bytes, stop: tuple[bytes, ...]) -> bytes | None:
    """``data`` before the stop string that ends first, or None where it holds none."""
    for end in range(1, len(data) + 1):
        begins = [end - len(s) for s in stop if data[:end].endswith(s)]
        if begins:
            return data[: min(begins)]
    return None


class Reference:
    """Decodes one request of at most 48 tokens (so the close-out guard looks at every one)."""

    def __init__(self, model: ToyModel, request: GenerationRequest):
        assert request.max_tokens <= 48
        self.model, self.request = model, request
        self.dfa: Dfa | None = request.constraint  # type: ignore[assignment]
        self.state = self.dfa.start if self.dfa else ""
        self.truth = Truth()
        self.runs: list[tuple[bytes, bool]] = []

    def decode(self) -> Truth:
        truth = self.truth
        if self.dfa and self._complete():
            truth.finish_reason = "stop"
        while not truth.finish_reason:
            forced = self._forced()
            token = self._choose() if forced is None else forced
            if token in self.request.stop_ids:
                truth.output.append(token)
                truth.finish_reason = "stop"
            elif self.dfa and (closing := self._too_late(token)) is not None:
                for last in closing:
                    self._append(last)
                    truth.forced += 1
                done = closing and self.state in self.dfa.accepting
                truth.finish_reason = "stop" if done else "length"
            else:
                self._append(token)
                truth.forced += forced is not None
        truth.text = self._text()
        self._tell_infos()
        return truth

    @property
    def _remaining(self) -> int:
        return self.request.max_tokens - len(self.truth.output)

    def _complete(self) -> bool:
        assert self.dfa
        return self.state in self.dfa.accepting and not self.dfa.options(self.state)

    def _forced(self) -> int | None:
        if self.dfa is None or self.state in self.dfa.accepting:
            return None
        options = self.dfa.options(self.state)
        return next(iter(options)) if len(options) == 1 else None

    def _choose(self) -> int:
        params, tokens = self.request.sampling, self.request.prompt + self.truth.output
        scores = self.model.logits(tokens)
        scores = History(params, tokens, len(self.request.prompt), VOCAB).adjust(scores)
        allowed = torch.ones(VOCAB, dtype=torch.bool)
        if self.dfa:
            options = set(self.dfa.options(self.state))
            options |= {EOS} if self.state in self.dfa.accepting else set()
            allowed = torch.tensor([token in options for token in range(VOCAB)])
            if self.state == self.dfa.free:
                allowed = torch.ones(VOCAB, dtype=torch.bool)
        if params.temperature == 0:
            return int(scores.masked_fill(~allowed, -torch.inf).argmax())
        return Entropy.of(params.seed).choose(len(tokens), target_probs(scores, params, allowed))

    def _too_late(self, token: int) -> list[int] | None:
        """The closing to take instead of ``token``, if nothing closes in time after it."""
        assert self.dfa
        after = self.dfa.options(self.state)[token]
        if self.dfa.shortest(after, self._remaining - 1) is not None:
            return None
        return self.dfa.shortest(self.state, self._remaining)

    def _append(self, token: int) -> None:
        truth = self.truth
        literal = self.dfa is not None and self.state != self.dfa.free
        if self.dfa:
            self.state = self.dfa.options(self.state)[token]
            literal = literal or self.state != self.dfa.free
        truth.output.append(token)
        if not self.runs or self.runs[-1][1] != literal:
            self.runs.append((b"", literal))
        self.runs[-1] = (self.runs[-1][0] + TOKEN_BYTES[token], literal)
        data = self.runs[-1][0]
        stopped = not literal and cut_at_stop(data, self.request.stop) is not None
        if stopped or (self.dfa and self._complete()):
            truth.finish_reason = "stop"
        elif self._remaining == 0:
            truth.finish_reason = "length"

    def _text(self) -> str:
        data = b""
        for run, literal in self.runs:
            cut = None if literal else cut_at_stop(run, self.request.stop)
            data += run if cut is None else cut
        return data.decode("utf-8", errors="replace")

    def _tell_infos(self) -> None:
        top = self.request.logprobs
        if top is None:
            return
        tokens = list(self.request.prompt)
        for token in self.truth.output:
            row = torch.log_softmax(self.model.logits(tokens), dim=0).tolist()
            best = sorted(range(VOCAB), key=lambda t, row=row: -row[t])[:top]
            self.truth.infos.append(TokenInfo(token, row[token], tuple((t, row[t]) for t in best)))
            tokens.append(token)
