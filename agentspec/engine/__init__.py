"""The speculative engine: torch, in a process of its own.

Read next: ``core.py`` (``Engine.step``: schedule, draft, verify, commit).
"""
