"""The gateway: one endpoint in front of all backends, one ledger row a request. No torch.

Read next: ``app.py`` (what is served), ``endpoint.py`` (one HTTP request), ``surface.py`` (the
protocols), ``service.py`` (one turn), ``exchange.py`` (headers, keep-alive, the client's leaving),
``tally.py`` (what goes into the row).
"""
