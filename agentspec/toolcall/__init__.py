"""Between text and tool calls: prompts, grammars, incremental parsing, schema checks.

Formats are data in ``grammars/``. Read next: ``format.py``.
"""
