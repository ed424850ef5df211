"""Places where a request can run. One Protocol; usage and acceptance come back in wire structs.

Read next: ``base.py`` (the Protocol and the turn), ``openai.py`` (any OpenAI-compatible URL),
``engine.py`` (ours), ``litellm.py`` (a commercial API), ``registry.py`` (from the settings).
"""
