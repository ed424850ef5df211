"""Cost curves of machines, and throughput tables that others published, to predict them by.

Of the published tables only what their authors printed stands here; what a prediction adds (draft
costs of another model, acceptance) is said where it is made.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentspec.engine.cost import CostCurve


def _ms(rows: tuple[int, ...], *milliseconds: float) -> CostCurve:
    return CostCurve.of(rows, [ms / 1000 for ms in milliseconds])


CURVES: dict[str, CostCurve] = {
    # ``bench kernels`` on 2 cores of an AMD EPYC, embedded model, int8, commit d7a02400d7: medians
    # of whole passes at 512, 2048 and 6144 tokens of context (docs/performance.md), split into base
    # and slope by least squares.
    "cpu2": CostCurve(
        (1, 4, 8, 16, 512),
        (3.92e-3, 4.39e-3, 7.38e-3, 11.16e-3, 266e-3),
        (1, 4, 8, 16),
        (0.98e-6, 1.2e-6, 1.84e-6, 3.85e-6),
    ),
    # DeepSeek-V4-Flash, TP4, B300: verify cost by tokens (vLLM's blog of 2026-08-14, figure 2,
    # read off the vector graphic).
    "v4-flash-4xb300": _ms((1, 16, 64, 128, 256, 512, 1024), 5.2, 6.1, 8.2, 9.9, 12.5, 16.2, 20.6),
}


@dataclass(frozen=True, slots=True)
class Table:
    """Aggregate tokens a second by concurrency and mode ("off", "kN", "adaptive").

    most: the most tokens that its adaptive mode drafts.
    """

    name: str
    source: str
    most: int
    rows: dict[int, dict[str, float]]

    def machine(self) -> CostCurve:
        """Cost of a pass by rows, and of each sequence in it (sampling, metadata).

        A step without speculation has a row a sequence, so its time alone can't tell them apart:
        the shape over rows is that of the one published verify curve, one factor and the seconds a
        sequence are fitted on the column "off" (least squares of relative errors).
        """
        shape = CURVES["v4-flash-4xb300"]
        aa = ab = bb = ay = by = 0.0
        for sequences, row in self.rows.items():
            unit = row["off"] / sequences
            a, b = shape.seconds(sequences) * unit, sequences * unit
            aa, ab, bb, ay, by = aa + a * a, ab + a * b, bb + b * b, ay + a, by + b
        whole = aa * bb - ab * ab
        factor, span_s = (ay * bb - by * ab) / whole, (by * aa - ay * ab) / whole
        if span_s < 0.0:
            factor, span_s = ay / aa, 0.0
        scaled = [factor * seconds for seconds in shape.seconds_at]
        return CostCurve.of(shape.rows, scaled, span_s)


def _table(name: str, source: str, most: int, columns: str, *lines: str) -> Table:
    names = columns.split()
    rows = {}
    for line in lines:
        concurrency, *values = line.split()
        rows[int(concurrency)] = dict(zip(names, map(float, values), strict=True))
    return Table(name, source, most, rows)


TABLES = {
    table.name: table
    for table in (
        _table(
            "v4-pro-8xb300",
            "vLLM, DeepSeek-V4-Pro-0813, 8xB300 TP8, T=1.0, 880 SPEED-Bench prompts "
            "(blog of 2026-08-14, figure 3, read off the vector graphic, 0.5 %)",
            7,
            "off k1 k3 k5 k6 k7 adaptive",
            "1 101 153 231 251 258 251 269",
            "16 1124 1408 1906 1939 1931 1878 2037",
            "32 1664 2384 3112 3071 3029 2939 3361",
            "64 2774 3864 4856 4931 4804 4611 5197",
            "128 4406 5912 7402 6846 6623 6250 7417",
            "256 6323 8619 9728 8766 8176 7609 9719",
        ),
        _table(
            "v4-flash-mi355x",
            "vLLM PR 52362: DeepSeek-V4-Flash, AMD MI355X, ShareGPT, 512 tokens out",
            7,
            "off k7 adaptive",
            "4 382 970 902",
            "8 729 1763 1617",
            "16 1343 2910 2774",
            "32 2393 4756 4501",
            "64 4095 6712 7144",
            "128 6341 8779 10356",
            "256 8879 7852 13325",
        ),
    )
}

DRAFT_MS = ((1, 0.9), (56, 2.3), (256, 5.4))
"""One DSpark draft by the sequences in it, V4-Flash on 4xB300 (same blog, figure 2)."""
