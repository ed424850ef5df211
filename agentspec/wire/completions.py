"""OpenAI text completions: a prompt to be continued, as a chat request and back."""

from __future__ import annotations

from typing import Any

import msgspec

from .chat import (
    ChatChunk,
    ChatRequest,
    ChatResponse,
    ChoiceLogprobs,
    Message,
    StreamOptions,
    Usage,
)
from .errors import InvalidRequest
from .extension import SpecRequest
from .fields import decode
from .spelling import Name

DEFAULT_MAX_TOKENS = 16  # OpenAI's, which vLLM and SGLang keep


class CompletionRequest(msgspec.Struct, kw_only=True):
    """One request, as far as agentspec reads it."""

    model: str
    prompt: str | list[Any] | None = None
    suffix: str | None = None
    max_tokens: int | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    n: int | None = None
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    user: str | None = None
    agentspec: SpecRequest | None = None


_REQUEST = msgspec.json.Decoder(CompletionRequest)


def decode_request(body: bytes) -> CompletionRequest:
    """Decode a request body. Raises ``InvalidRequest`` naming the offending field."""
    asked = decode(_REQUEST, body)
    if isinstance(asked.prompt, list) and len(asked.prompt) == 1:
        asked.prompt = asked.prompt[0]
    if not isinstance(asked.prompt, str):
        raise InvalidRequest(
            "Invalid value for 'prompt': expected one string. Token ids and several prompts in one "
            "request are not supported here.",
            param="prompt",
            code="invalid_value",
        )
    if not asked.prompt:
        raise InvalidRequest(
            "Invalid value for 'prompt': it must not be empty.",
            param="prompt",
            code="invalid_value",
        )
    if asked.echo and asked.logprobs is not None:
        raise InvalidRequest(
            "'echo' together with 'logprobs' is not supported here: the log probabilities of a "
            "prompt's tokens are not computed.",
            param="echo",
            code="unsupported_parameter",
        )
    if asked.best_of is not None and asked.best_of > (asked.n or 1):
        raise InvalidRequest(
            "'best_of' is not supported here.", param="best_of", code="unsupported_parameter"
        )
    return asked


def translate(asked: CompletionRequest) -> ChatRequest:
    """The chat request whose one message is the prompt; ``raw`` keeps the chat template off."""
    assert isinstance(asked.prompt, str), "decode_request lets nothing else through"
    extension = asked.agentspec or SpecRequest()
    return ChatRequest(
        model=asked.model,
        messages=[Message("user", asked.prompt)],
        stream=asked.stream,
        stream_options=asked.stream_options,
        max_tokens=DEFAULT_MAX_TOKENS if asked.max_tokens is None else asked.max_tokens,
        temperature=asked.temperature,
        top_p=asked.top_p,
        top_k=asked.top_k,
        n=asked.n,
        logprobs=None if asked.logprobs is None else True,
        top_logprobs=asked.logprobs or None,
        stop=asked.stop,
        seed=asked.seed,
        presence_penalty=asked.presence_penalty,
        frequency_penalty=asked.frequency_penalty,
        logit_bias=asked.logit_bias,
        user=asked.user,
        agentspec=msgspec.structs.replace(extension, raw=True, suffix=asked.suffix or None),
    )


SPELLING = (
    Name("messages", "prompt", whole=True),
    Name("messages[0]", "prompt", whole=True),
    Name("top_logprobs", "logprobs"),
    Name("agentspec.suffix", "suffix"),
    Name("max_completion_tokens", "max_tokens"),
)
"""The fields of the chat request, as the client knows them."""


class CompletionWriter:
    """Writes one answer in the shape of text completions.

    key: a word of the answer's own, for its id.
    """

    def __init__(self, key: str, created_s: int, asked: CompletionRequest):
        self._head = {
            "id": f"cmpl-{key}",
            "object": "text_completion",
            "created": created_s,
            "model": asked.model,
        }
        prompt = asked.prompt if isinstance(asked.prompt, str) else ""
        self._echo = prompt if asked.echo else ""
        self._echoed: set[int] = set()
        self._offsets: dict[int, int] = {}

    def whole(self, response: ChatResponse) -> dict[str, Any]:
        choices = [
            self._choice(c.index, c.message.content or "", c.finish_reason, c.logprobs)
            for c in response.choices
        ]
        usage = {"usage": response.usage} if response.usage else {}
        return self._head | {"choices": choices} | usage

    def chunk(self, chunk: ChatChunk) -> dict[str, Any] | None:
        """The chunk's event; None for one that says nothing."""
        choices = []
        for choice in chunk.choices:
            content = choice.delta.content
            text = content if isinstance(content, str) else ""
            if text or choice.finish_reason or choice.logprobs:
                reason = choice.finish_reason
                choices.append(self._choice(choice.index, text, reason, choice.logprobs))
        return self._head | {"choices": choices} if choices else None

    def usage(self, usage: Usage) -> dict[str, Any]:
        """The last event, for clients that set include_usage."""
        return self._head | {"choices": [], "usage": usage}

    def _choice(
        self, index: int, text: str, reason: str | None, logprobs: ChoiceLogprobs | None
    ) -> dict[str, Any]:
        shown = self._logprobs(index, logprobs)
        if index not in self._echoed:
            self._echoed.add(index)
            text = self._echo + text
        return {"index": index, "text": text, "finish_reason": reason, "logprobs": shown}

    def _logprobs(self, index: int, told: ChoiceLogprobs | None) -> dict[str, Any] | None:
        """Log probabilities in the old shape: parallel lists."""
        if told is None or told.content is None:
            return None
        offsets, at = [], self._offsets.get(index, len(self._echo))
        for token in told.content:
            offsets.append(at)
            at += len(token.token)
        self._offsets[index] = at
        return {
            "tokens": [token.token for token in told.content],
            "token_logprobs": [token.logprob for token in told.content],
            "top_logprobs": [
                {top.token: top.logprob for top in token.top_logprobs} for token in told.content
            ],
            "text_offset": offsets,
        }
