"""Formats against the models' own chat templates.

The templates lie in the source package of llama-cpp-python (MIT; models/templates), which
scripts/peers.sh puts below .peers/; they are other people's, so they are read there and not kept
here. ``make test-formats`` runs this; without the package it says so and passes over.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jinja2 import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import SandboxedEnvironment

from agentspec.engine.chat_template import ChatTemplate
from agentspec.engine.model.errors import TokenizerError
from agentspec.toolcall.detect import recognised
from agentspec.toolcall.native import probe
from agentspec.toolcall.parser import Parser

from .samples import read

pytestmark = pytest.mark.peers
ROOT = Path(__file__).resolve().parents[2]
FOUND = sorted(ROOT.glob(".peers/src/llama_cpp_python-*/vendor/llama.cpp/models/templates/*.jinja"))
KNOWN = {
    "GLM-4.6": "glm45",
    "GLM-4.7-Flash": "glm47",
    "Kimi-K2-Instruct": "kimi_k2",
    "MiniMax-M2": "minimax_m2",
    "Mistral-Small-3.2-24B-Instruct-2506": "mistral_args",
    "NousResearch-Hermes-3-Llama-3.1-8B-tool_use": "hermes",
    "Qwen-Qwen3-0.6B": "hermes",
    "Qwen3-Coder": "qwen3_coder",
    "Qwen3.5-4B": "qwen3_coder",
    "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B": "deepseek_v3",
    "deepseek-ai-DeepSeek-V3.1": "deepseek_v31",
    "deepseek-ai-DeepSeek-V3.2": "deepseek_v32",
    "deepseek-ai-DeepSeek-V4": "deepseek_v4",
    "google-gemma-4-31B-it": "gemma4",
    "meta-llama-Llama-3.1-8B-Instruct": "llama3_json",
    "mistralai-Ministral-3-14B-Reasoning-2512": "mistral_args",
    "mistralai-Mistral-Nemo-Instruct-2407": "mistral_list",
    "openai-gpt-oss-120b": "harmony",
    # Other formats: not known, and not taken for one of ours.
    "Apertus-8B-Instruct": None,
    "Cohere2MoE": None,
    "Kimi-K3": None,
    "MiniMax-M3": None,
    "NVIDIA-Nemotron-Nano-v2": None,
    "google-gemma-2-2b-it": None,
    "meetkai-functionary-medium-v3.1": None,
    "microsoft-Phi-3.5-mini-instruct": None,
    "tencent-Hy3": None,
}
# The templates of some families write only one call a turn, or none of their own.
SILENT = {"LFM2-8B-A1B", "deepseek-ai-DeepSeek-R1-Distill-Llama-8B"}
CALLED: list[tuple[str, dict[str, Any]]] = [
    ("weather", {"city": 'Zürich "x" <a> {y}', "days": 3, "box": {"a": [1, 2.5]}, "deep": True}),
    ("ping", {}),
]
PARAMETERS = {
    "weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "A town."},
            "days": {"type": "integer", "description": "How many."},
            "box": {"type": "object", "description": "More."},
            "deep": {"type": "boolean", "description": "Whether."},
        },
        "required": ["city"],
    },
    "ping": {"type": "object", "properties": {}},
}


def _refuse(message: str) -> None:
    raise TemplateError(message)


def _json(value: Any, indent: int | None = None, **_: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def render(source: str, count: int, as_text: bool) -> tuple[str, str]:
    """(the prompt, the prompt with an answer of ``count`` calls behind it)."""
    environment = SandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    environment.filters["tojson"] = _json
    environment.globals.update(raise_exception=_refuse, strftime_now=lambda form: form)
    tools = [
        {"type": "function", "function": {"name": n, "description": n, "parameters": p}}
        for n, p in PARAMETERS.items()
    ]
    calls = [
        {
            "id": f"call0000{i}",
            "type": "function",
            "function": {"name": n, "arguments": json.dumps(a) if as_text else a},
        }
        for i, (n, a) in enumerate(CALLED[:count])
    ]
    asked = [{"role": "user", "content": "QUESTION"}]
    answered = [*asked, {"role": "assistant", "content": "", "tool_calls": calls}]
    template = environment.from_string(source)
    names = {"tools": tools, "bos_token": "<BOS>", "eos_token": "<EOS>"}
    prompt = template.render(messages=asked, add_generation_prompt=True, **names)
    return prompt, template.render(messages=answered, add_generation_prompt=False, **names)


def rendered(source: str, count: int) -> tuple[str, str]:
    """As ``render``, in whichever way the template takes arguments. Raises its own error."""
    try:
        return render(source, count, False)
    except (TemplateError, TypeError):
        return render(source, count, True)


def answer_of(prompt: str, whole: str) -> str:
    """What the model would have written: whatever the prompt does not have, from a mark on."""
    begin = whole.rindex("QUESTION")
    shared = begin
    offset = prompt.rindex("QUESTION") - begin
    while (
        shared < min(len(whole), len(prompt) - offset) and whole[shared] == prompt[shared + offset]
    ):
        shared += 1
    for opening, closing in ("<>", "[]"):
        mark = whole.rfind(opening, begin, shared)
        if mark >= 0 and whole.rfind(closing, begin, shared) < mark:
            shared = mark
    return whole[shared:]


@pytest.fixture(params=FOUND or [None], ids=lambda path: path.stem if path else "none")
def template(request: pytest.FixtureRequest) -> Path:
    if request.param is None:
        pytest.skip("no templates: run scripts/peers.sh")
    return request.param


def test_the_format_is_told_by_the_template(template: Path):
    found = recognised("a-model", template.read_text(encoding="utf-8"))
    if template.stem in KNOWN:
        assert (found.name if found else None) == KNOWN[template.stem]


OWN = {
    *("GLM-4.6", "MiniMax-M2", "Mistral-Small-3.2-24B-Instruct-2506", "Qwen-Qwen2.5-7B-Instruct"),
    *("Qwen-Qwen3-0.6B", "Qwen3-Coder", "Qwen3.5-4B", "HuggingFaceTB-SmolLM3-3B"),
    *("NousResearch-Hermes-3-Llama-3.1-8B-tool_use", "deepseek-ai-DeepSeek-V3.2"),
    *("google-gemma-4-31B-it", "ibm-granite-granite-4.0", "meta-llama-Llama-3.3-70B-Instruct"),
    *("mistralai-Mistral-Nemo-Instruct-2407", "moonshotai-Kimi-K2", "openai-gpt-oss-120b"),
}
"""Templates that are known to show tools themselves, in the format that they are known by."""


def test_a_template_that_shows_tools_is_used_for_them(template: Path):
    source = template.read_text(encoding="utf-8")
    fmt = recognised("a-model", source)
    if fmt is None:
        pytest.skip("no format of ours in it")
    made = ChatTemplate(source, {"bos_token": "<BOS>", "eos_token": "<EOS>"})

    def shown(turns: list, tools: list | None) -> str:
        try:
            return made.render(turns, True, tools)
        except TokenizerError as error:
            raise ValueError(str(error)) from None

    assert probe(shown, fmt) is not None or template.stem not in OWN


def test_calls_that_the_template_writes_are_read_back(template: Path):
    source = template.read_text(encoding="utf-8")
    fmt = recognised("a-model", source)
    if fmt is None or template.stem in SILENT:
        pytest.skip("no format of ours in it")
    read_any, reason = False, ""
    for count in (1, 2):
        try:
            prompt, whole = rendered(source, count)
        except (TemplateError, TypeError) as error:
            reason = str(error)
            continue
        answer = answer_of(prompt, whole)
        found = read(Parser(fmt, PARAMETERS), [answer])
        calls = [(call["name"], call["arguments"]) for call in found.calls]
        wanted = CALLED[: 1 if fmt.name == "harmony" else count]
        assert calls == wanted, answer
        assert found.dropped == 0 and read(Parser(fmt, PARAMETERS), list(answer)) == found
        read_any = True
    if not read_any:
        pytest.skip(f"the template writes none: {reason[:60]}")
