"""Making a draft: regenerate, cache, train, calibrate, eval. See docs/train.md.

Reads and writes files only; nothing here is imported by a serving engine. Read next: ``spec.py``
(what a draft is), ``export.py`` (what it looks like on disk), ``trainer.py``.
"""
