"""The five methods as torch modules that train. Read next: ``block.py``, ``chain.py``."""

from __future__ import annotations

from agentspec.engine.train.spec import DraftSpec

from .base import DraftNet


def build_net(spec: DraftSpec) -> DraftNet:
    """The untrained module of a spec, float32, weights drawn from torch's global generator."""
    from .block import BlockNet
    from .chain import Eagle3Net, MtpNet

    if spec.method == "eagle3":
        return Eagle3Net(spec)
    return MtpNet(spec) if spec.method == "mtp" else BlockNet(spec)


__all__ = ["DraftNet", "build_net"]
