"""``agentspec serve``: one installation's processes, kept running.

Read next: ``installation.py`` (which processes, on which sockets), ``processes.py`` (how one is
kept alive).
"""
