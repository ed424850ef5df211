"""Decoding as one would write it down first: no engine, no chunks, no drafts, no cache."""

from __future__ import annotations

import torch

from agentspec.engine.batch import Span
from agentspec.engine.request import GenerationRequest
from agentspec.engine.sampling import Entropy, best_token, target_probs, unpack_mask
from tests.exact.world import World


def decode(world: World, request: GenerationRequest) -> list[int]:
    """Token ids of the answer, the token that ends it included; stop strings are not looked for."""
    session = None if request.constraint is None else request.constraint.session()
    entropy = Entropy.of(request.sampling.seed)
    tokens, computed = list(request.prompt), 0
    end = len(tokens) + request.max_tokens
    pages = list(range(-(-end // 16)))
    while len(tokens) < end:
        if session is not None and session.must_stop:
            break
        span = [] if session is None else session.forced(end - len(tokens))
        if not span:
            rows = Span(tokens[computed:], computed, pages, [len(tokens) - computed - 1])
            logits = world.runner.forward([rows]).logits[0]
            computed = len(tokens)
            mask = None if session is None else _mask(session, logits.numel())
            if request.sampling.greedy:
                span = [best_token(logits, mask)]
            else:
                probs = target_probs(logits, request.sampling, mask)
                span = [entropy.choose(len(tokens), probs)]
        tokens += span
        if span[-1] in request.stop_ids:
            break
        if session is not None:
            session.accept(span)
    return tokens[len(request.prompt) :]


def _mask(session, vocab: int) -> torch.Tensor:
    """[vocab] bool: what the grammar allows here."""
    words = torch.zeros(1, (vocab + 31) // 32, dtype=torch.int32)
    session.masks((), words)
    return unpack_mask(words[0], vocab)
