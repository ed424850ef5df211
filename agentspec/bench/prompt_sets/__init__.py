"""Prompts by the thousand, on two sides that never meet: to train drafts on, and to judge them by.

Made anew from the sources of the Python that runs this (PSF licence), from templates and word lists
here, and from function-calling tasks in BFCL's form where a file of them is given. The side of a
prompt is decided by the hash of what it's about (``sides.py``), not by the order of drawing.
"""
