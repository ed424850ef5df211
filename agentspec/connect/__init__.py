"""``agentspec connect``: a coding agent's configuration for this endpoint, written and undone.

Read first: ``base.py`` (the values), then ``clients/`` (one file a client or a family).
"""
