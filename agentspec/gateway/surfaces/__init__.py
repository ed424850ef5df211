"""The protocols that clients speak, each as a ``Surface`` (``gateway/surface.py``).

Read next: ``chat.py`` (nothing to translate), ``responses.py``, ``messages.py``.
"""
