"""An engine of our own for the check, and what its process holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentspec.bench import processes
from agentspec.bench.start import memory_mib
from agentspec.bench.workloads import BenchError


@dataclass(frozen=True, slots=True)
class Own:
    url: str
    process: int

    def memory_mib(self) -> tuple[float, float]:
        """Resident now, and at most so far."""
        return memory_mib(self.process)


@contextmanager
def engine(config: str | None, draft: str | None) -> Iterator[Own]:
    """Serve on loopback until the block ends. draft: loaded beside what the settings say.

    Raises ``ProcessFailed``, and ``BenchError`` where both are given.
    """
    if config and draft:
        raise BenchError("--draft and --config: name the draft in the file (engine.drafts)")
    if draft and not Path(draft).exists():
        raise BenchError(f"--draft: {draft} does not exist")
    port = processes.free_port()
    with TemporaryDirectory(prefix="agentspec-protocol-") as folder:
        command = ["engine", "serve", "--port", str(port), "--data-dir", folder]
        if draft:
            file = Path(folder) / "draft.toml"
            file.write_text(f"[engine]\ndrafts = [{json.dumps(str(Path(draft).resolve()))}]\n")
            config = str(file)
        if config:
            command += ["--config", config]
        with processes.agentspec(command, folder) as server:
            url = f"http://127.0.0.1:{port}"
            with processes.wait_http(f"{url}/health", server):
                yield Own(f"{url}/v1", server.pid)
