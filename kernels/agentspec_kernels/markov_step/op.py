"""``markov_step``: argument checks and choice of backend. Legend: as in ``step.py``."""

from __future__ import annotations

from agentspec_kernels.backend import pick

from . import reference
from .step import Choice, Step


def _triton(step: Step) -> Choice:
    """One program a sequence."""
    from . import kernel

    return kernel.markov_step(step)


BACKENDS = {"reference": reference.markov_step, "torch": reference.markov_step, "triton": _triton}


def markov_step(step: Step, *, backend: str | None = None) -> Choice:
    """The next drafted token of each sequence; changes nothing. Raises ``UnknownBackend``."""
    step.check()
    return pick("markov_step", BACKENDS, backend, step.logits.device.type)(step)
