"""mini-swe-agent: a configuration of its own, laid over the agent's. Checked with 2.4.6.

It speaks through litellm, which takes the key from OPENAI_API_KEY. Without ``cost_tracking`` off it
stops at a model whose price it doesn't know; without ``max_tokens`` a small model that repeats
itself goes on to the end of its context.
"""

from __future__ import annotations

from agentspec.connect.base import Client, ConfigFile, Configuration, Target, words


def configure(target: Target) -> Configuration:
    path = target.own / "mini-swe-agent.yaml"
    settings = {
        "model": {
            "model_name": f"openai/{target.model}",
            "cost_tracking": "ignore_errors",
            "model_kwargs": {"api_base": target.base_url, "max_tokens": target.output_tokens},
        }
    }
    return Configuration(
        client="mini-swe-agent",
        command=words("mini", "-c", "mini.yaml", "-c", path),
        files=(ConfigFile(path, "yaml", settings, own=True),),
        env={"OPENAI_API_KEY": target.key},
    )


CLIENT = Client(
    name="mini-swe-agent",
    title="mini-swe-agent",
    surface="chat",
    configure=configure,
    images=False,
)
