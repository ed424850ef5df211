"""One file a client or a family of clients; ``agentspec.connect.registry`` knows them all."""
