"""Measuring programs behind ``agentspec bench``; peers run beside us, in the same run.

Read next: ``cli.py`` (what there is), ``engines.py`` (decode speed), ``gateway.py`` (latency it
adds), ``tools.py``, ``replay.py``, ``kill.py`` (right answers), ``report.py`` (every file's head).
"""
