"""``agentspec plan``: does a model with its draft fit on N GPUs, and does speculation pay there."""
