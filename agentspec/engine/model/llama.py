"""Llama (Touvron et al., arXiv 2302.13971) and Qwen3 (arXiv 2505.09388).

Qwen3 is a Llama whose queries and keys are normed head by head, as its shape says.
"""

from __future__ import annotations

from .decoder import Decoder


class Llama(Decoder):
    """See ``Decoder``. Its embeddings and lm_head serve drafts as they are."""
