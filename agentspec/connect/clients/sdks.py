"""The vendors' Python SDKs: environment alone. Checked with openai 3.57 and anthropic 2.14."""

from __future__ import annotations

from agentspec.connect.base import Client, Configuration, Target, words


def _openai(target: Target) -> Configuration:
    code = (
        "import openai; print(openai.OpenAI().chat.completions.create("
        f"model={target.model!r}, max_tokens=16, "
        "messages=[{'role': 'user', 'content': 'Hello'}]).choices[0].message.content)"
    )
    return Configuration(
        client="openai-sdk",
        command=words("python", "-c", code),
        env={"OPENAI_BASE_URL": target.base_url, "OPENAI_API_KEY": target.key},
    )


def _anthropic(target: Target) -> Configuration:
    code = (
        "import anthropic; print(anthropic.Anthropic().messages.create("
        f"model={target.model!r}, max_tokens=16, "
        "messages=[{'role': 'user', 'content': 'Hello'}]).content)"
    )
    return Configuration(
        client="anthropic-sdk",
        command=words("python", "-c", code),
        env={"ANTHROPIC_BASE_URL": target.url, "ANTHROPIC_API_KEY": target.key},
    )


OPENAI = Client(name="openai-sdk", title="OpenAI's Python SDK", surface="chat", configure=_openai)
ANTHROPIC = Client(
    name="anthropic-sdk",
    title="Anthropic's Python SDK",
    surface="messages",
    configure=_anthropic,
)
