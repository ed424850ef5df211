"""Which format serves a model. The template fragments are made up: the marks alone count."""

from __future__ import annotations

import pytest

from agentspec.toolcall.choice import output_spec
from agentspec.toolcall.detect import UNKNOWN, NoSuchFormat, format_for, recognised
from agentspec.toolcall.format import format_names, load_format
from agentspec.wire.chat import decode_request
from agentspec.wire.errors import InvalidRequest


@pytest.mark.parametrize("name", format_names())
def test_templates_with_a_formats_marks_are_recognised(name: str):
    fmt = load_format(name)
    for marks in fmt.recognition.template:
        found = recognised("some-model", "{{ " + " }}{{ ".join(marks) + " }}")
        assert found is fmt


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("smollm2-135m-instruct", "smollm2"),
        ("Qwen/Qwen3-0.6B", "hermes"),
        ("qwen3-coder-30b-a3b-instruct", "qwen3_coder"),
        ("deepseek-ai/DeepSeek-V3.2", "deepseek_v32"),
        ("deepseek-v3.2-exp", "deepseek_v31"),
        ("DeepSeek-V3-0324", "deepseek_v3"),
        ("openai/gpt-oss-20b", "harmony"),
        ("gemma-3-4b-it", "gemma3"),
        ("zai-org/GLM-4.7", "glm47"),
        ("phi-4", None),
        ("", None),
    ],
)
def test_names_are_recognised(model: str, name: str | None):
    found = recognised(model)
    assert (found.name if found else None) == name


def test_a_template_counts_before_a_name():
    found = recognised("qwen3-0.6b", "<tool_call> <function= <parameter= ")
    assert found is not None and found.name == "qwen3_coder"


def test_a_setting_counts_before_both():
    assert format_for("kimi_k2", "qwen3-0.6b").name == "kimi_k2"
    with pytest.raises(NoSuchFormat, match=r"'klingon'; there is: auto, deepseek_v3, .*smollm3"):
        format_for("klingon", "qwen3-0.6b")


def test_with_an_unknown_format_tools_are_refused_and_plain_requests_are_not():
    fmt = format_for("auto", "phi-4", template="{{ messages }}")
    assert fmt.name == UNKNOWN
    request = decode_request(
        b'{"model": "m", "messages": [{"role": "user", "content": "x"}], '
        b'"tools": [{"type": "function", "function": {"name": "f"}}]}'
    )
    with pytest.raises(InvalidRequest, match=r"engine\.tool_format") as refused:
        output_spec(request, fmt)
    assert refused.value.param == "tools"
    request.tool_choice = "none"
    assert output_spec(request, fmt) is None
