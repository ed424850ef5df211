"""The dashboard: HTML pages and SVG figures drawn on the server from the ledger. No JavaScript.

Read next: ``app.py`` (the routes), ``figures.py`` (what the first page draws).
"""
