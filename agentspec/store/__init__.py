"""The ledger: one row a request, in SQL. Journal files first, one elected writer after them.

Read next: ``record.py`` (what a row holds), ``journal.py`` (how it survives the process).
"""
