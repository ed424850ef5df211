"""Text <-> tool calls. The formats themselves are data: folders in ``grammars/``.

Read next: ``format.py`` (a format's folder), ``choice.py`` (a request's demands on the answer),
``prompt.py`` (messages and tools as turns), ``parser.py`` (text to calls), ``check.py`` (finished
arguments against their schema). No torch here, and nothing of the engine.
"""
