"""One model over several processes: rank 0 decides, the others compute their part of its passes.

Rank 0 is the engine: it schedules, drafts, samples and accepts, and before every pass it sends the
others what the pass holds, the tokens that it accepted among it. So no rank can accept another
token: they only follow. Two checks hold that: every message carries a digest of all before it, and
(``Shard.checked``) ranks compare a sum over the bits of the rows that come out of the last layer.

Messages go over gloo, on the host, whatever the tensors' own group is. The numbers that every rank
has alike, K/V pages and slots among them, are rank 0's.

Read next: ``model/shard.py`` (which part of the weights a rank has).
"""

from __future__ import annotations

import hashlib
import logging
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import tempfile
from collections.abc import Sequence
from datetime import timedelta
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Thread

import msgspec
import torch
import torch.distributed as dist

from agentspec.settings import EngineSettings

from .batch import Forward, Span
from .model.errors import UnsupportedModel
from .model.shard import RanksDisagree, Shard
from .runner import Runner

_log = logging.getLogger(__name__)
_FOREVER = timedelta(days=365)
"""An engine that nobody asks anything sends nothing; a process that dies closes its connection."""


class Pass(msgspec.Struct, array_like=True, tag=True):
    """Compute this."""

    spans: list[Span]


class Move(msgspec.Struct, array_like=True, tag=True):
    """Move K/V within a sequence."""

    pages: list[int]
    moves: list[tuple[int, int]]


class Stop(msgspec.Struct, array_like=True, tag=True):
    """The last message."""


Message = Pass | Move | Stop


class Wire:
    """What rank 0 says, in order, to all. group: of gloo; None: the default one."""

    def __init__(self, group: dist.ProcessGroup | None = None):
        self._group = group
        self._said = b""
        self._decoder = msgspec.msgpack.Decoder(Message)

    def say(self, message: Message) -> None:
        """From rank 0."""
        body = msgspec.msgpack.encode(message)
        head = torch.tensor([len(body), self._digest(body)], dtype=torch.int64)
        dist.broadcast(head, 0, group=self._group)
        dist.broadcast(torch.frombuffer(bytearray(body), dtype=torch.uint8), 0, group=self._group)

    def hear(self) -> Message:
        """On the others. Raises ``RanksDisagree`` where a message was lost or changed."""
        head = torch.zeros(2, dtype=torch.int64)
        dist.broadcast(head, 0, group=self._group)
        body = torch.zeros(int(head[0]), dtype=torch.uint8)
        dist.broadcast(body, 0, group=self._group)
        heard = body.numpy().tobytes()
        if self._digest(heard) != int(head[1]):
            raise RanksDisagree("a rank did not hear what rank 0 said")
        return self._decoder.decode(heard)

    def _digest(self, body: bytes) -> int:
        """Of all messages up to this one."""
        self._said = hashlib.blake2b(self._said + body, digest_size=7).digest()
        return int.from_bytes(self._said, "little")


class ParallelRunner(Runner):
    """Rank 0: the face of ``Runner``, of which the other ranks follow every pass."""

    wire: Wire
    followers: Sequence[BaseProcess] = ()
    _scratch: str | None = None
    _closing = False

    @classmethod
    def start(cls, settings: EngineSettings, path: Path, *, taps: Sequence[int] = ()) -> Runner:
        """Start the other ranks on this machine and load every rank's part of the weights.

        Raises ``UnsupportedModel`` or ``WeightsError``.
        """
        ranks = settings.tensor_parallel
        scratch = tempfile.mkdtemp(prefix="agentspec-ranks-")
        context = multiprocessing.get_context("spawn")
        followers = [
            context.Process(
                target=follow, args=(settings, path, rank, ranks, f"{scratch}/meet"), daemon=True
            )
            for rank in range(1, ranks)
        ]
        for process in followers:
            process.start()
        try:
            shard = join(settings, 0, ranks, f"{scratch}/meet")
            runner = cls.load(settings, path, device=device(settings, 0), taps=taps, shard=shard)
        except BaseException:
            for process in followers:
                process.terminate()
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        assert isinstance(runner, cls)
        runner.wire, runner.followers, runner._scratch = Wire(), followers, scratch
        runner.threads *= ranks
        Thread(target=runner._watch, name="ranks", daemon=True).start()
        return runner

    def forward(self, spans: Sequence[Span]) -> Forward:
        """See ``Runner``."""
        self.wire.say(Pass(list(spans)))
        return super().forward(spans)

    def compact(self, pages: Sequence[int], moves: Sequence[tuple[int, int]]) -> None:
        """See ``Runner``."""
        self.wire.say(Move(list(pages), list(moves)))
        super().compact(pages, moves)

    def close(self) -> None:
        """Let the other ranks end; no pass after this."""
        self._closing = True
        self.wire.say(Stop())
        for process in self.followers:
            process.join()
        if self._scratch is not None:
            dist.destroy_process_group()
            shutil.rmtree(self._scratch, ignore_errors=True)

    def _watch(self) -> None:
        """End this process when another rank has ended: no pass can be computed any more, and who
        supervises the engine starts it anew."""
        multiprocessing.connection.wait([process.sentinel for process in self.followers])
        if not self._closing:
            _log.critical("another rank of engine.tensor_parallel ended: the engine ends too")
            os.kill(os.getpid(), signal.SIGTERM)


def follow(settings: EngineSettings, path: Path, rank: int, ranks: int, meet: str) -> None:
    """The whole life of a rank that isn't the first."""
    # Ctrl-C goes to every process of a terminal; rank 0 is the one that ends the others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    shard = join(settings, rank, ranks, meet)
    runner = Runner.load(settings, path, device=device(settings, rank), shard=shard)
    obey(runner, Wire())
    dist.destroy_process_group()


def obey(runner: Runner, wire: Wire) -> None:
    """Do what rank 0 says until it says stop. Raises ``RanksDisagree``."""
    while True:
        message = wire.hear()
        if isinstance(message, Stop):
            return
        if isinstance(message, Move):
            runner.compact(message.pages, message.moves)
        else:
            runner.forward(message.spans)


def join(settings: EngineSettings, rank: int, ranks: int, meet: str) -> Shard:
    """Meet the other ranks at the file ``meet``; this one's shard."""
    cuda = settings.device == "cuda"
    if cuda and torch.cuda.device_count() < ranks:
        raise UnsupportedModel(
            f"engine.tensor_parallel = {ranks}, but there are {torch.cuda.device_count()} GPUs"
        )
    backend = "cpu:gloo,cuda:nccl" if cuda else "gloo"
    dist.init_process_group(
        backend, init_method=f"file://{meet}", rank=rank, world_size=ranks, timeout=_FOREVER
    )
    return Shard(rank, ranks, exact=settings.exact, checked=not cuda)


def device(settings: EngineSettings, rank: int) -> str:
    """Where a rank computes."""
    return f"cuda:{rank}" if settings.device == "cuda" else "cpu"
