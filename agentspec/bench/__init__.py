"""Measuring programs behind ``agentspec bench``; peers run beside us, in the same run.

Read next: ``cli.py`` (what there is), ``engines.py`` (decode speed), ``gateway.py`` (added latency),
``tools.py``, ``replay.py`` and ``kill.py`` (right answers), ``report.py`` (what every file holds).
"""
