"""The spoken protocols. Values only: decoded once, encoded once, shared by engine and gateway.

Read next: ``chat.py`` (requests, responses, chunks), ``extension.py`` (the ``agentspec`` object),
``errors.py`` (the error tree and its HTTP statuses), ``sse.py`` (event streams).
"""
