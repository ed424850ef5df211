"""Table 1 of the DSpark paper (arXiv 2607.05147): accepted length with the bonus, T = 1, chains.

Nine sets each: GSM8K, MATH, AIME25, MBPP, HumanEval, LiveCodeBench, MT-Bench, Alpaca, Arena-Hard.
"""

from __future__ import annotations

from statistics import fmean

TABLE_1 = {
    "Qwen3-4B": (
        (5.14, 4.62, 3.92, 3.69, 4.16, 3.77, 2.39, 2.26, 2.55),
        (5.40, 4.85, 4.15, 4.40, 4.74, 4.18, 3.07, 2.96, 2.83),
        (6.11, 5.70, 4.89, 5.13, 5.38, 4.86, 3.64, 3.54, 3.29),
    ),
    "Qwen3-8B": (
        (5.30, 4.77, 3.91, 3.96, 4.33, 4.17, 2.66, 2.54, 2.54),
        (5.33, 4.91, 4.07, 4.36, 4.64, 4.39, 3.11, 2.98, 2.81),
        (6.17, 5.78, 5.01, 5.16, 5.52, 5.17, 3.72, 3.58, 3.21),
    ),
    "Qwen3-14B": (
        (5.24, 4.60, 3.71, 3.81, 4.14, 4.01, 2.62, 2.47, 2.48),
        (5.41, 4.84, 3.98, 4.44, 4.59, 4.33, 3.10, 2.94, 2.72),
        (6.21, 5.74, 4.94, 5.26, 5.43, 5.02, 3.70, 3.58, 3.13),
    ),
    "Gemma4-12B": (
        (5.87, 5.46, 4.83, 4.72, 5.37, 4.16, 3.19, 3.06, 2.72),
        (5.45, 5.04, 4.22, 4.39, 4.95, 3.70, 2.98, 2.84, 2.59),
        (6.05, 5.78, 5.12, 5.11, 5.64, 4.51, 3.49, 3.35, 2.92),
    ),
}
"""Of a model: EAGLE-3, DFlash, DSpark."""


def means() -> dict[str, tuple[float, float, float]]:
    """Of a model: the means of EAGLE-3, DFlash and DSpark."""
    return {
        model: (fmean(eagle3), fmean(dflash), fmean(dspark))
        for model, (eagle3, dflash, dspark) in TABLE_1.items()
    }
