"""``agentspec compare`` from its arguments to its document."""

from __future__ import annotations

import argparse
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentspec.bench import report
from agentspec.bench.workloads import BenchError, Prompt, load
from agentspec.engine.cost import CostCurve
from agentspec.engine.draft import names as model_free
from agentspec.engine.modes import Mode, UnknownMode
from agentspec.engine.shipped import shipped, trained_on

from . import figures, peer
from .harness import BASELINE, Design, Shot, shots
from .methods import Method, Variant, parse_drafts, parse_methods, variants
from .overlap import overlapping, trained_runs
from .rig import Rig, settings_of

MASKED = {"both": (True, False), "yes": (True,), "no": (False,)}


@dataclass(frozen=True, slots=True)
class Plan:
    """What the command line asks for; fields as it names them."""

    target: str | None
    methods: Seq[Method]
    drafts: dict[str, str]
    workloads: Seq[str]
    maskings: Seq[bool]
    temperatures: Seq[float]
    schedules: Seq[str]
    seeded: bool
    count: int
    samples: int
    max_tokens: int
    context: int
    threads: int
    seed: int
    data: Path | None
    training: Seq[Path]
    config: str | None
    llamacpp: Path | None

    @classmethod
    def of(cls, args: argparse.Namespace) -> Plan:
        """Raises ``BenchError`` for what is not there."""
        own = {} if args.target else {name: str(path) for name, path in shipped().items()}
        drafts = own | parse_drafts(args.drafts)
        for schedule in args.schedule:
            _check_schedule(schedule)
        return cls(
            target=args.target,
            methods=parse_methods(args.methods, list(drafts)),
            drafts=drafts,
            workloads=args.workloads,
            maskings=MASKED[args.masked],
            temperatures=args.temperature,
            schedules=args.schedule,
            seeded=args.sampling == "seeded",
            count=args.n,
            samples=args.samples,
            max_tokens=args.max_tokens,
            context=args.context,
            threads=args.threads,
            seed=args.seed,
            data=Path(args.data) if args.data else None,
            training=[*([] if args.target else trained_on()), *map(Path, args.training)],
            config=args.config,
            llamacpp=peer.check(Path(args.llamacpp)) if args.llamacpp else None,
        )

    @property
    def sources(self) -> list[str]:
        """Every source that some method uses."""
        return list(dict.fromkeys(name for method in self.methods for name in method.sources))

    def prompts(self) -> list[Prompt]:
        """Raises ``BenchError`` for too few, or for one that was trained on."""
        found = [p for w in self.workloads for p in load(w, self.count, self.data, self.seed)]
        seen = overlapping(((p.id, p.body) for p in found), trained_runs(self.training))
        if seen:
            raise BenchError(f"in the training prompts as well: {', '.join(seen)}")
        return found


def _check_schedule(name: str) -> None:
    if name in ("off", "blind"):
        raise BenchError(f"--schedule {name}: plain and blind rows are made by --methods, --masked")
    try:
        Mode(name, 1, CostCurve.of([1], [1.0]))
    except UnknownMode as error:
        raise BenchError(f"--schedule: {error}") from None


def run(plan: Plan) -> dict[str, Any]:
    """The whole document. Raises ``BenchError``, ``SettingsError`` or a kind of ``ModelError``."""
    prompts = plan.prompts()
    drafts = {name: path for name, path in plan.drafts.items() if name in plan.sources}
    free = [name for name in plan.sources if name in model_free()]
    settings = settings_of(plan.config, plan.target, plan.threads, free)
    rig = Rig.start(settings, drafts, blind=False in plan.maskings)
    design = Design(
        variants(plan.methods, plan.schedules, plan.maskings, sorted(rig.blind)),
        plan.temperatures,
        plan.samples,
        plan.seeded,
        plan.seed,
    )
    items = [rig.item(prompt, plan.max_tokens, plan.context) for prompt in prompts]
    taken = list(shots(rig, items, design, report.progress))
    theirs = {"peers": [], "not_exported": {}}
    if plan.llamacpp is not None:
        cases = rig.cases(items)
        theirs = peer.measure(plan.llamacpp, rig.weights, settings.threads, cases, drafts)
    return document(taken, plan.seed) | {
        **theirs,
        "target": rig.weights.name,
        "drafts": drafts,
        "threads": settings.threads,
        "max_tokens": plan.max_tokens,
        "context": plan.context,
        "seed": plan.seed,
    }


def document(taken: Seq[Shot], seed: int) -> dict[str, Any]:
    """Results, quotients of methods, and every answer's figures.

    other_text: answers that should be plain decoding's and are not; checked: how many were
    compared. exact: whether the backend promises that they are.
    """
    cells = figures.cells(taken, seed)
    answers = [answer for shot in taken for answer in shot.answers.values()]
    compared = [shot for shot in taken if shot.sampling.decided or shot.item.fixed]
    return report.build(
        [row for cell in cells for row in figures.rows(cell)],
        pairs=[pair for cell in cells for pair in figures.pairs(cell)],
        exact=bool(answers) and all(answer.exact for answer in answers),
        checked=sum(len(shot.answers) - 1 for shot in compared),
        other_text=[_other(shot, variant) for shot in taken for variant in shot.other_text],
        answers=[_told(shot, v, a) for shot in taken for v, a in shot.answers.items()],
    )


def _named(shot: Shot, variant: Variant) -> dict[str, Any]:
    return {
        "case": shot.item.id,
        "method": variant.method.name,
        "schedule": variant.schedule,
        "masked": variant.masked and shot.item.grammar,
        "temperature": shot.sampling.temperature,
        "seed": shot.sampling.seed,
    }


def _other(shot: Shot, variant: Variant) -> dict[str, Any]:
    texts = {"plain": shot.answers[BASELINE].text, "text": shot.answers[variant].text}
    return _named(shot, variant) | texts


def _told(shot: Shot, variant: Variant, answer: Any) -> dict[str, Any]:
    names = ("out_tokens", "tokens", "seconds", "steps", "drafted", "accepted", "forced", "looped")
    return _named(shot, variant) | {name: getattr(answer, name) for name in names}
