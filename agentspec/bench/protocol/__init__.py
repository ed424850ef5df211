"""``agentspec protocol``: the five-step adoption check of a speculative set-up."""
