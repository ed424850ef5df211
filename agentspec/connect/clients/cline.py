"""Cline's command line: a provider file of its own, named by a variable. Checked with 3.0.65.

``cline auth`` would write the key into its file; here the key comes with the command instead.
"""

from __future__ import annotations

from agentspec.connect.base import NO_KEY, Client, ConfigFile, Configuration, Target, words

_PROVIDER = "openai-compatible"


def configure(target: Target) -> Configuration:
    settings = {
        "provider": _PROVIDER,
        "apiKey": NO_KEY,
        "model": target.model,
        "baseUrl": target.base_url,
    }
    entry = {
        "settings": settings,
        "updatedAt": "2026-01-01T00:00:00.000Z",
        "tokenSource": "manual",
    }
    path = target.own / "cline.json"
    file = {
        "version": 1,
        "lastUsedProvider": _PROVIDER,
        "modes": {},
        "providers": {_PROVIDER: entry},
    }
    key = ("-k", target.key) if target.key_env else ()
    return Configuration(
        client="cline",
        command=words("cline", "-P", _PROVIDER, "-m", target.model, *key),
        files=(ConfigFile(path, "json", file, own=True),),
        env={"CLINE_PROVIDER_SETTINGS_PATH": str(path)},
    )


CLIENT = Client(name="cline", title="Cline CLI", surface="chat", configure=configure)
