"""``agentspec compare``: every way of drafting on the same prompts, beside plain decoding.

Read first: ``harness.py`` (what is run), then ``figures.py`` (what is made of it).
"""
