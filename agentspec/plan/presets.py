"""Models, their drafts, and what is published about how many drafted tokens they accept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from . import config
from .drafts import Draft, block, head, smaller
from .hardware import PlanError
from .shape import Shape


@dataclass(frozen=True, slots=True)
class Preset:
    """accepted: lowest and highest published accepted length (bonus token counted) of blocks of
    ``draft.most`` tokens; where nothing is published, lengths of an assumption, and the source says
    so. path: the model's name at its publisher; draft_path: the draft's, None: none is known."""

    name: str
    path: str
    model: Shape
    draft: Draft
    accepted: tuple[float, float]
    source: str
    draft_path: str | None = None


def _model(name: str, source: str, **fields: object) -> Shape:
    return config.shape(dict(fields), name, source)


_GQA = {"num_key_value_heads": 8, "head_dim": 128}
LLAMA_70B = _model(
    "Llama-3.1-70B",
    "config.json of meta-llama/Llama-3.1-70B-Instruct",
    **_GQA,
    num_hidden_layers=80,
    hidden_size=8192,
    num_attention_heads=64,
    intermediate_size=28672,
    vocab_size=128256,
)
LLAMA_8B = _model(
    "Llama-3.1-8B",
    "config.json of meta-llama/Llama-3.1-8B-Instruct",
    **_GQA,
    num_hidden_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    intermediate_size=14336,
    vocab_size=128256,
)
QWEN3_8B = _model(
    "Qwen3-8B",
    "config.json of Qwen/Qwen3-8B",
    **_GQA,
    num_hidden_layers=36,
    hidden_size=4096,
    num_attention_heads=32,
    intermediate_size=12288,
    vocab_size=151936,
)
QWEN3_CODER = _model(
    "Qwen3-Coder-30B-A3B",
    "config.json of Qwen/Qwen3-Coder-30B-A3B-Instruct",
    num_hidden_layers=48,
    hidden_size=2048,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    intermediate_size=6144,
    moe_intermediate_size=768,
    num_experts=128,
    num_experts_per_tok=8,
    vocab_size=151936,
)
GPT_OSS = _model(
    "gpt-oss-120B",
    "config.json and model card of openai/gpt-oss-120b (checkpoint 60.8 GiB)",
    num_hidden_layers=36,
    hidden_size=2880,
    num_attention_heads=64,
    num_key_value_heads=8,
    head_dim=64,
    intermediate_size=2880,
    num_local_experts=128,
    experts_per_token=4,
    vocab_size=201088,
    sliding_window=128,
    layer_types=["sliding_attention", "full_attention"] * 18,
    quantization_config={"quant_method": "mxfp4"},
)
V4_FLASH = _model(
    "DeepSeek-V4-Flash",
    "config.json of deepseek-ai/DeepSeek-V4-Flash as loaders' tests carry it (284B, 13B active)",
    num_hidden_layers=43,
    hidden_size=4096,
    num_attention_heads=64,
    num_key_value_heads=1,
    head_dim=512,
    q_lora_rank=1024,
    o_lora_rank=1024,
    o_groups=8,
    moe_intermediate_size=2048,
    n_routed_experts=256,
    n_shared_experts=1,
    num_experts_per_tok=6,
    vocab_size=129280,
    sliding_window=128,
    compress_ratios=[0, 0] + [4, 128] * 20 + [4],
    quantization_config={"quant_method": "fp8", "expert_dtype": "fp4"},
)
GUESS = "assumed, nothing published: measure it with `agentspec protocol`"
PRESETS = {
    preset.name.lower(): preset
    for preset in (
        Preset(
            "Llama-3.1-70B",
            "meta-llama/Llama-3.1-70B-Instruct",
            LLAMA_70B,
            smaller(LLAMA_8B, 5),
            (2.5, 3.6),
            GUESS,
            "meta-llama/Llama-3.1-8B-Instruct",
        ),
        Preset(
            "Qwen3-8B",
            "Qwen/Qwen3-8B",
            QWEN3_8B,
            block(QWEN3_8B, 5, 7),
            (3.5, 5.28),
            "3.5: one H100, vLLM, counters of a public lab; 5.28: mean of MBPP, HumanEval and LCB "
            "in the DSpark paper's table 1 (arXiv 2607.05147)",
            "deepseek-ai/dspark_qwen3_8b_block7",
        ),
        Preset(
            "Qwen3-Coder-30B-A3B",
            "Qwen/Qwen3-Coder-30B-A3B-Instruct",
            QWEN3_CODER,
            block(QWEN3_CODER, 5, 7),
            (2.6, 4.4),
            GUESS,
        ),
        Preset(
            "gpt-oss-120B",
            "openai/gpt-oss-120b",
            GPT_OSS,
            head(GPT_OSS, 3),
            (1.8, 2.5),
            GUESS,
        ),
        Preset(
            "DeepSeek-V4-Flash",
            "deepseek-ai/DeepSeek-V4-Flash-DSpark",
            V4_FLASH,
            block(V4_FLASH, 3, 5, native=True),
            (2.91, 5.24),
            "2.91 on poetry, 3.78 on arena-hard, 5.24 on gsm8k (SGLang's windows of mixed traffic)",
            "deepseek-ai/DeepSeek-V4-Flash-DSpark",
        ),
    )
}


SMALL = {
    shape.name.lower(): shape for shape in (LLAMA_8B, *(one.model for one in PRESETS.values()))
}
"""Models that are known as a draft of a larger one; the tokenizer decides."""


def model(name: str) -> Preset:
    """A preset by its name, or a model by its config.json. Raises ``PlanError``, ``OSError``."""
    found = PRESETS.get(name.lower())
    if found is not None:
        return found
    path = _config_of(name, "--model", [preset.name for preset in PRESETS.values()])
    shape = config.read(path)
    return Preset(shape.name, str(path.parent), shape, block(shape, 5, 7), (2.6, 4.4), GUESS)


def _config_of(name: str, option: str, known: list[str]) -> Path:
    path = Path(name)
    if path.is_dir():
        path = path / "config.json"
    if not path.exists():
        raise PlanError(f"{option}: '{name}' is neither a file nor one of {', '.join(known)}")
    return path


def draft(text: str, target: Shape) -> Draft | None:
    """``none``, ``dspark[:LAYERS[:BLOCK]]``, ``eagle3[:TOKENS]``, one of ``SMALL`` or a config.json
    (a smaller model). Raises ``PlanError``, ``OSError``."""
    kind, *rest = text.split(":")
    try:
        numbers = [int(word) for word in rest]
    except ValueError:
        numbers = [0]
    if kind in ("dspark", "eagle3") and any(number < 1 for number in numbers):
        raise PlanError(f"--draft: '{text}': numbers behind '{kind}' must be 1 or more")
    if kind == "none":
        return None
    if kind == "dspark":
        layers, width = [*numbers, *(5, 7)[len(numbers) :]][:2]
        return block(target, layers, width)
    if kind == "eagle3":
        return head(target, numbers[0] if numbers else 3)
    small = SMALL.get(text.lower())
    if small is None:
        names = ["none", "dspark", "eagle3", *(shape.name for shape in SMALL.values())]
        small = config.read(_config_of(text, "--draft", names))
    if small.vocab != target.vocab:
        raise PlanError(
            f"--draft: '{text}' has {small.vocab} tokens, the model {target.vocab}: "
            "a draft needs the model's tokenizer"
        )
    if small.active_params >= target.active_params:
        raise PlanError(f"--draft: '{text}' is no smaller than the model")
    return smaller(small, 5)
