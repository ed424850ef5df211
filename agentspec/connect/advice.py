"""What a client cannot do on a backend, in sentences: context, images, names of models."""

from __future__ import annotations

from .base import Client, Target
from .measured import measured

SMALL_CONTEXT_TOKENS = 16384
"""Below it the engine shows the tools in short form (docs/toolcall.md)."""
_TIGHT = 0.6


def cannot(client: Client, target: Target, *, images: bool | None) -> list[str]:
    """images: whether the model takes them; None: not asked."""
    found = [_context(client, target)]
    if client.images and images is False:
        found.append("Images: this model takes text only; a request with an image is refused.")
    if not client.prefers(target.model):
        found.append(f"Model name: {client.why_not}.")
    return [line for line in found if line]


def _context(client: Client, target: Target) -> str:
    size, context = measured().get(client.name), target.context_tokens
    if size is None or context is None:
        return ""
    need = size.short_tokens if context < SMALL_CONTEXT_TOKENS else size.full_tokens
    about = f"its first request ({client.name} {size.version}) takes about {need:,} tokens"
    if need >= context:
        return f"Context: {about}, and the model has {context:,}: it will be refused."
    if need > _TIGHT * context:
        return f"Context: {about} of the model's {context:,}: room for {context - need:,} more."
    return ""
