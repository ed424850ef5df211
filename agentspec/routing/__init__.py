"""Where a request runs: candidates in, one logged decision out, fallback before the first byte.

Read next: ``decision.py`` (what is decided and logged), ``policy.py`` (who decides),
``attempts.py`` (how a decision is carried out).
"""
