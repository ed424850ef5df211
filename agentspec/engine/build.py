"""Settings -> a service that is ready to serve: weights, tokenizer, grammars, drafters, engine.

Takes seconds: the weights are read, and the cost curve is measured (less well where one is kept).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from agentspec.settings import EngineSettings, Settings, SettingsError
from agentspec.settings_drafts import DraftSettings
from agentspec.toolcall.detect import UNKNOWN, NoSuchFormat, format_for
from agentspec.toolcall.format import ToolFormat
from agentspec.toolcall.shorten import budget_chars

from . import cost, draft
from .batch import Span
from .constrain.factory import ConstraintFactory
from .control import ControlWindows
from .core import Engine
from .cost import CostCurve, CurveKey, Measured
from .draft.base import Drafter
from .drafts import Drafts, facts_of
from .loop import EngineLoop
from .meter import Clock
from .metrics import EngineMetrics
from .model.errors import ModelError
from .model.fetch import resolve
from .runners import open_runner
from .service import EngineService
from .shipped import default_for
from .showing import Showing
from .tokenizer import Tokenizer
from .turn import Planner

if TYPE_CHECKING:
    from .core import Runner
    from .runners import AnyRunner

_SHORT_CONTEXT, _LONG_CONTEXT = 64, 4096
"""Tokens before the passes that are profiled."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Built:
    """The parts of an engine before anything serves them."""

    engine: Engine
    planner: Planner
    tokenizer: Tokenizer
    weights: Path
    drafts: Drafts


def build(
    settings: EngineSettings,
    wrap: Callable[[AnyRunner], Runner] | None = None,
    *,
    control: ControlWindows | None = None,
    curve: CostCurve | None = None,
    clock: Clock = time.monotonic_ns,
) -> Built:
    """Load the weights and make every part. wrap: puts something between engine and runner.
    control: windows without speculation; only an engine that serves has them. curve, clock: for
    measuring, another cost curve than this machine's, and another time.

    Raises ``SettingsError`` naming the key, or ``ModelError`` where the weights cannot be had.
    """
    drafters = _drafters(settings)
    path = resolve(settings.weights)
    tokenizer = Tokenizer.load(path)
    found = _tool_format(settings, path, tokenizer)  # before the weights are read: it may refuse
    runner = open_runner(settings, path)
    context_tokens = min(settings.context_tokens, runner.context_tokens)
    engine = Engine(
        runner if wrap is None else wrap(runner),
        drafters,
        curve=cost_curve(runner, path, settings) if curve is None else curve,
        settings=settings,
        token_bytes=tokenizer.token_bytes,
        control=control,
        clock=clock,
    )
    planner = Planner(
        model=settings.model,
        context_tokens=context_tokens,
        tokenizer=tokenizer,
        tool_format=_with_room(found, settings, context_tokens),
        compiler=constraints(tokenizer, settings),
        sources=settings.draft_sources,
    )
    drafts = Drafts(
        runner, facts_of(runner, settings, path, tokenizer), settings, tokenizer, engine, planner
    )
    _load_drafts(settings, drafts)
    return Built(engine, planner, tokenizer, path, drafts)


def build_service(settings: Settings) -> EngineService:
    """The service of one engine process. Raises what ``build`` raises."""
    built = build(settings.engine, control=ControlWindows.of(settings.engine))
    built.planner.warm()
    metrics = EngineMetrics()
    return EngineService(
        EngineLoop(built.engine, on_end=metrics.sequence_ended),
        built.planner,
        metrics,
        keepalive_s=settings.server.keepalive_s,
        max_body_bytes=settings.server.max_body_bytes,
        drafts=built.drafts,
    )


def showing(settings: EngineSettings, path: Path, tokenizer: Tokenizer) -> Showing:
    """How an engine with these settings would show requests. Raises ``SettingsError``."""
    found = _tool_format(settings, path, tokenizer)
    return Showing(tokenizer, _with_room(found, settings, settings.context_tokens))


def _with_room(found: ToolFormat, settings: EngineSettings, context_tokens: int) -> ToolFormat:
    room = budget_chars(settings.tool_text, found.tools_budget_chars, context_tokens)
    return replace(found, tools_budget_chars=room)


def _tool_format(settings: EngineSettings, path: Path, tokenizer: Tokenizer) -> ToolFormat:
    names, template = (settings.model, path.name), tokenizer.template_source
    try:
        found = format_for(settings.tool_format, *names, template=template)
    except NoSuchFormat as error:
        raise SettingsError(f"engine.tool_format: {error}") from None
    if found.name == UNKNOWN:
        _log.warning(
            "how '%s' writes tool calls is not known, so requests with tools are refused: set "
            "engine.tool_format",
            settings.model,
        )
    return found


def _drafters(settings: EngineSettings) -> list[Drafter]:
    try:
        return [draft.create(name) for name in settings.draft_sources]
    except draft.UnknownDrafter as error:
        raise SettingsError(f"engine.draft_sources: {error}") from None


def _load_drafts(settings: EngineSettings, drafts: Drafts) -> None:
    chosen = settings.drafts
    if chosen is None:
        own = default_for(drafts.target)
        chosen = [] if own is None else [str(own)]
    for one in chosen:
        asked = DraftSettings(path=one) if isinstance(one, str) else one
        try:
            drafts.take(drafts.read(asked), asked.path)
        except ModelError as error:
            raise SettingsError(f"engine.drafts: {asked.path}: {error}") from None


def constraints(
    tokenizer: Tokenizer,
    settings: EngineSettings,
    *,
    canonical: bool = True,
    flexible: bool = False,
    cache_size: int = 256,
) -> ConstraintFactory:
    """The grammar compiler for a vocabulary; the switches are for measuring (see the factory)."""
    return ConstraintFactory(
        token_bytes=tokenizer.token_bytes,
        eos_ids=tokenizer.eos_ids,
        special_ids=tokenizer.special_ids,
        hf_tokenizer_json=tokenizer.hf.to_str(),
        vocab_size=tokenizer.vocab_size,
        backend=settings.constraint_backend,
        canonical=canonical,
        flexible=flexible,
        cache_size=cache_size,
    )


def cost_curve(runner: AnyRunner, path: Path, settings: EngineSettings) -> CostCurve:
    """The curve of these weights on this machine: the fastest passes of all starts.

    The first start measures it well; each later one takes one more round, so that what was
    measured beside other work is mended (a cold pass lowers nothing). It decides how much is
    drafted, never what is said.
    """
    key = CurveKey.here(_weights_id(path), _arithmetic(runner.kind, settings), runner.threads)
    kept = cost.load(key)
    measured = (
        measure(runner) if kept is None else kept.lowered(measure(runner, repeats=1, warm=False))
    )
    if measured != kept:
        try:
            cost.save(measured, key)
        except OSError as error:
            _log.warning("the cost curve cannot be kept: %s", error)
    return measured.curve


def _arithmetic(kind: str, settings: EngineSettings) -> str:
    """What a pass's time depends on beside weights, threads and processor."""
    parts = [kind]
    if settings.device == "cuda":
        import torch

        parts.append(torch.cuda.get_device_name())
    if settings.tensor_parallel > 1:
        parts.append(f"{settings.tensor_parallel} ranks")
    if settings.exact:
        parts.append("exact")
    return ", ".join(parts)


def measure(runner: AnyRunner, repeats: int = 8, *, warm: bool = True) -> Measured:
    """Profile passes of few to many rows behind a short and a long prompt, and of many sequences
    (``cost.measure``). Before the engine starts: it writes into pages that no sequence owns yet.
    """
    rows = [count for count in cost.ROWS if 4 * count <= runner.context_tokens]
    room = runner.context_tokens - rows[-1]
    contexts = min(_SHORT_CONTEXT, room // 2), min(_LONG_CONTEXT, room)
    pages = list(range(-(-runner.context_tokens // runner.page_tokens)))
    own = -(-(contexts[0] + 1) // runner.page_tokens)
    spans = min(cost.SPANS, rows[-1], runner.num_pages // own)

    def forward(count: int, start: int) -> object:
        return runner.forward([Span([0] * count, start, pages, list(range(count)))])

    def apart(count: int, start: int) -> object:
        parts = (list(range(own * i, own * (i + 1))) for i in range(count))
        return runner.forward([Span([0], start, part, [0]) for part in parts])

    return cost.measure(
        forward,
        apart if spans > 1 else None,
        contexts=contexts,
        rows=rows,
        spans=spans,
        repeats=repeats,
        warm=warm,
    )


def _weights_id(path: Path) -> str:
    """Tells files apart without reading them: names, sizes, times of change."""
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    facts = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return f"{path.name}:{facts}"
