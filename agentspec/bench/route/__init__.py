"""Routing judged offline: on a simulated fleet that recorded traffic runs through, and on a ledger.

Read next: ``trace.py`` (the traffic), ``fleet.py`` (the truth), ``simulate.py`` (the run).
"""
