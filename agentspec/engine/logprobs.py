"""Token log-probabilities in OpenAI's shape, kept in step with the text that is given out.

Text may be held back (a stop string could be starting) or cut (it did start); the token entries
follow the text: an entry is given out with the first byte of its token, and never when the token
ended up outside the answer (a stop string, the end-of-text token).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Seq

from agentspec.wire.chat import TokenLogprob, TopLogprob

from .request import TokenInfo


class LogprobTrack:
    """The entries of one sequence. ``token_bytes[id]`` are the bytes of a token."""

    def __init__(self, token_bytes: Seq[bytes]):
        self._token_bytes = token_bytes
        self._waiting: deque[tuple[int, TokenInfo]] = deque()
        self._sampled_bytes = 0
        self._shown_bytes = 0

    def add(self, infos: Seq[TokenInfo]) -> None:
        """Tokens that were committed, in order."""
        for info in infos:
            self._waiting.append((self._sampled_bytes, info))
            self._sampled_bytes += len(self._token_bytes[info.token])

    def show(self, text: str) -> list[TokenLogprob]:
        """The entries of the tokens that begin within the next ``text`` of the answer."""
        self._shown_bytes += len(text.encode())
        shown = []
        while self._waiting and self._waiting[0][0] < self._shown_bytes:
            shown.append(self._entry(self._waiting.popleft()[1]))
        return shown

    def _entry(self, info: TokenInfo) -> TokenLogprob:
        token, raw = self._spell(info.token)
        top = [TopLogprob(*self._named(id, logprob)) for id, logprob in info.top]
        return TokenLogprob(token=token, logprob=info.logprob, bytes=raw, top_logprobs=top)

    def _named(self, token: int, logprob: float) -> tuple[str, float, list[int]]:
        text, raw = self._spell(token)
        return text, logprob, raw

    def _spell(self, token: int) -> tuple[str, list[int]]:
        raw = self._token_bytes[token]
        return raw.decode("utf-8", errors="replace"), list(raw)
