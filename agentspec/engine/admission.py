"""What a request must meet before the engine takes it."""

from __future__ import annotations

from typing import Protocol

from agentspec.wire.errors import ContextLengthExceeded, InvalidRequest

from .request import GenerationRequest


class Capacity(Protocol):
    """What a runner can hold."""

    vocab_size: int
    page_tokens: int
    num_pages: int


def check_request(request: GenerationRequest, capacity: Capacity, context_tokens: int) -> None:
    """Raises ``InvalidRequest`` naming what is wrong; ``ContextLengthExceeded`` for the prompt.

    What passes fits the context and, alone, the page pool up to its last token.
    """
    prompt = len(request.prompt)
    if prompt == 0:
        raise InvalidRequest("The prompt is empty.", param="messages")
    if not all(0 <= token < capacity.vocab_size for token in request.prompt):
        raise InvalidRequest("The prompt holds a token id outside the vocabulary.", param="prompt")
    if request.max_tokens < 1:
        raise InvalidRequest("max_tokens must be at least 1.", param="max_tokens")
    pool_tokens = capacity.num_pages * capacity.page_tokens
    most = min(context_tokens, pool_tokens)
    if prompt >= most:
        raise ContextLengthExceeded.of(prompt, most)
    if prompt + request.max_tokens > most:
        raise InvalidRequest(
            f"{prompt} prompt tokens and max_tokens {request.max_tokens} do not fit the "
            f"{most} tokens that this engine can hold for one request.",
            param="max_tokens",
        )
