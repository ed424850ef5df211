"""The CPU library behind the ops: exact int8 arithmetic, fixed summation orders, sleeping threads.

Read next: ``program.cpp`` (what runs), ``program.py`` (how Python describes it), ``build.py``.
"""
