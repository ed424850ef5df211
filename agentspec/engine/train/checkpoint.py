"""A run's state on disk, so that a killed run goes on bit for bit where its checkpoint was."""

from __future__ import annotations

import os
import pickle
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from .errors import Mismatch, TrainError
from .nets import DraftNet


@dataclass(slots=True)
class State:
    """step: the next one. rows, context: supervised and read tokens so far; seconds of training.

    plan: what must be equal for a run to go on: data, shapes, loss, schedule. dtype: of products,
    kept so that "auto" can't choose another on the way.
    """

    plan: dict[str, Any]
    dtype: str
    step: int = 0
    rows: int = 0
    context: int = 0
    flops: int = 0
    seconds: float = 0.0


def save(path: Path, state: State, net: DraftNet, optimizer: torch.optim.Optimizer) -> None:
    """Replace the checkpoint whole. Raises ``TrainError`` where it cannot be written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = {
        "state": asdict(state),
        "net": net.state_dict(),
        "optimizer": optimizer.state_dict(),
    }
    draft = path.with_suffix(".part")
    try:
        torch.save(whole, draft)
    except RuntimeError as error:  # torch's own writer says so of a full disk
        draft.unlink(missing_ok=True)
        raise TrainError(f"{draft} cannot be written: {_first_line(error)}") from None
    os.replace(draft, path)


def restore(
    path: Path, plan: dict[str, Any], net: DraftNet, optimizer: torch.optim.Optimizer
) -> State | None:
    """Load a checkpoint into net and optimiser; None where there is none.

    Raises ``Mismatch`` naming the first entry of ``plan`` that was another then, ``TrainError``
    where the file cannot be read.
    """
    if not path.exists():
        return None
    try:
        whole = torch.load(path, map_location="cpu", weights_only=True)
        state = State(**whole["state"])
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError, KeyError, TypeError) as error:
        raise TrainError(
            f"{path} cannot be read: {_first_line(error)} (--restart begins anew)"
        ) from None
    if (other := _first_other("", state.plan, plan)) is not None:
        name, was, now = other
        raise Mismatch(
            f"{path} is of another run: {name} was {was!r}, now {now!r}; take another 'folder' or "
            "pass --restart"
        )
    net.load_state_dict(whole["net"])
    optimizer.load_state_dict(whole["optimizer"])
    return state


def _first_line(error: Exception) -> str:
    return str(error).split("\n", 1)[0][:200]


def _first_other(name: str, was: Any, now: Any) -> tuple[str, Any, Any] | None:
    """The first entry, as a dotted name, in which two values differ; one of None is not there."""
    if not (isinstance(was, dict) and isinstance(now, dict)):
        return None if was == now else (name, was, now)
    pairs = ((f"{name}.{key}".lstrip("."), key) for key in sorted(was.keys() | now.keys()))
    found = (_first_other(whole, was.get(key), now.get(key)) for whole, key in pairs)
    return next((other for other in found if other is not None), None)
