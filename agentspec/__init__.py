"""agentspec: an inference gateway for coding agents with its own speculative engine."""

__version__ = "0.1.0"
