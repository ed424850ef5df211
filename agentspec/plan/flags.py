"""Start commands for the engines, out of flags that their documentation or source names.

SGLang: docs/advanced_features/speculative_decoding.md, release notes of v0.5.16 and its DSpark
recipes. vLLM: docs/features/speculative_decoding (adaptive_verification.md, eagle.md,
draft_model.md). Ours: ``agentspec/settings.py``.
"""

from __future__ import annotations

import json

from .drafts import Draft
from .shape import Shape


def sglang(path: str, gpus: int, draft: Draft | None, draft_path: str | None) -> str:
    words = [f"python3 -m sglang.launch_server --model-path {path}"]
    if gpus > 1:
        words.append(f"--tp-size {gpus}")
    if draft is None:
        return " ".join(words)
    where = draft_path or "DRAFT"
    if draft.kind == "dspark":
        words = ["SGLANG_RAGGED_VERIFY_MODE=compact", *words, "--speculative-algorithm DSPARK"]
        if draft_path != path:
            words.append(f"--speculative-draft-model-path {where}")
        words.append(f"--speculative-dspark-block-size {draft.most}")
        return " ".join(words)
    kind = "EAGLE3" if draft.kind == "eagle3" else "STANDALONE"
    words.append(f"--speculative-algorithm {kind} --speculative-draft-model-path {where}")
    words.append(f"--speculative-num-steps {draft.most} --speculative-eagle-topk 1")
    words.append(f"--speculative-num-draft-tokens {draft.most + 1}")
    return " ".join(words)


def vllm(path: str, gpus: int, draft: Draft | None, draft_path: str | None) -> str:
    words = [f"vllm serve {path}"]
    if gpus > 1:
        words.append(f"--tensor-parallel-size {gpus}")
    if draft is not None:
        method = {"model": "draft_model"}.get(draft.kind, draft.kind)
        wanted = {
            "method": method,
            "model": draft_path or "DRAFT",
            "num_speculative_tokens": draft.most,
            "enable_adaptive_verification": True,
        }
        words.append(f"--speculative-config '{json.dumps(wanted)}'")
        words.append("--per-request-spec-decode-metrics summary")
    return " ".join(words)


def ours(path: str, shape: Shape, draft: Draft | None, draft_path: str | None) -> str:
    """Settings of this engine, which loads folders; its scheduler decides the widths by itself.

    It has neither latent nor compressed attention, experts in four or eight bits, nor a smaller
    model as a draft: where one is needed, that is said instead.
    """
    lacking = _lacking(shape)
    if lacking:
        return f"not here: this engine has no {lacking}"
    if draft is not None and draft.kind == "model":
        return "not with this draft: this engine drafts with trained heads, not with another model"
    lines = ["[engine]", f'weights = "/path/to/{path}"']
    if draft:
        lines.append(f'drafts = ["/path/to/{draft_path or "DRAFT"}"]')
    return "\n".join([*lines, "[engine.scheduling]", f'mode = "{"adaptive" if draft else "off"}"'])


def _lacking(shape: Shape) -> str:
    """What a model needs that this engine lacks; "" for one of a family that it loads."""
    if shape.ratios or shape.mla:
        return "latent or compressed attention"
    if shape.weight_bytes < 2 or shape.expert_bytes < 2:
        return "weights in FP8 or MXFP4"
    if shape.experts and (shape.shared or shape.full_layers is not None):
        return "such mixture of experts"
    return ""
